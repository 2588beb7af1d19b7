"""What simulations take of a model besides what `up` reads: speculation, tiers, adapters, typed.

Our own engine has guesses, and says nothing of how many hold; the other two are of engines that
somebody else writes. `up` leaves all of it alone.
"""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from ridgeline.errors import UnitError
from ridgeline.serving.spec_part import Part
from ridgeline.units import parse_bytes, parse_number, parse_seconds, parse_unit

_RATE = parse_unit("B/s").dimension


def _bytes_per_s(text: str | float) -> float:
    """A rate with its unit; ValueError says what would do."""
    try:
        return parse_number(str(text), _RATE)[0]
    except UnitError as error:
        raise ValueError(f"{error.problem}, {error.remedy}") from error


Share = Annotated[float, Field(ge=0, le=1)]
_Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0)]
#: As JSON they are written as they are read: with their units.
_BytesPerS = Annotated[
    float,
    BeforeValidator(_bytes_per_s),
    PlainSerializer(lambda value: f"{value!r}B/s", when_used="json"),
    Field(gt=0),
]
_Seconds = Annotated[
    float,
    BeforeValidator(parse_seconds),
    PlainSerializer(lambda value: f"{round(value, 9)!r}s", when_used="json"),
    Field(ge=0),
]


class SimulatedSpeculation(Part):
    """How guesses fare."""

    acceptance: Share | dict[str, Share] = Field(
        description="chance that a guess holds; or by adapter or tenant, `default` for all others"
    )
    draft_tokens: int | None = Field(
        None, ge=1, le=16, description="guesses in a row; our own engine's are in `engine`"
    )
    draft_cost: Share = Field(0.0, description="of a plain step, for each guess in a row")
    rule: Literal["measured", "always"] = Field(
        "measured", description="our engine's switch by measured steps, or in every step"
    )
    off_above: int = Field(0, ge=0, description="always: not with more sequences than this; 0: no")
    expected: float | None = Field(
        None, gt=0.1, lt=1, description="share that holds in health: lower by 0.1 is an alarm"
    )

    @model_validator(mode="after")
    def _is_of_its_rule(self) -> Self:
        if self.off_above and self.rule != "always":
            raise ValueError("off_above is of rule: always; measured finds the batch itself")
        return self


class TierSpec(Part):
    """Where blocks go that leave the devices' cache."""

    name: str = Field(min_length=1, description="for reports, as host or disk")
    size: _Bytes = Field(description="room for blocks, of one replica")
    bandwidth: _BytesPerS = Field(description="of loading from it, e.g. 50GB/s")
    latency: _Seconds = Field(0.0, description="before the first byte")


class AdaptersSpec(Part):
    """Low-rank adapters on one base."""

    shares: dict[str, Share] = Field(
        min_length=1, description="of all requests by adapter; the rest asks the base model"
    )
    slots: int = Field(8, ge=1, description="adapters in a replica's device memory at once")
    size: _Bytes = Field(description="of one, e.g. 160MB; `ridgeline plan adapters` computes it")
    bandwidth: _BytesPerS = Field(20e9, description="of loading one")

    @model_validator(mode="after")
    def _are_shares(self) -> Self:
        if sum(self.shares.values()) > 1 + 1e-9:
            raise ValueError(f"shares are {sum(self.shares.values()):g} in all, more than 1")
        if "" in self.shares:
            raise ValueError("an adapter has a name")
        return self


RoleName = Literal["both", "prefill", "decode"]


class Group(Part):
    """More replicas of the same model and engine, on other hardware or for another part."""

    name: str = Field(
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", description="in reports: MODEL-NAME"
    )
    on: str = Field(description="the `hardware` that it is on")
    min: int = Field(1, ge=0, description="replicas that are always there")
    max: int | None = Field(
        None, ge=1, description="the most, as `scale` says; it grows when the groups before it have"
    )
    role: RoleName = Field("both", description="what it does of a request")
    tensor_parallel: int | None = Field(
        None, ge=1, description="devices of one replica; the engine's where not set"
    )
    start: _Seconds | None = Field(None, description="how long a start takes; as `replicas.start`")
    slots: int | None = Field(None, ge=1, description="requests at once in one; as of the model")

    @model_validator(mode="after")
    def _has_bounds(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max {self.max} is less than min {self.min}")
        return self

    @property
    def most(self) -> int:
        """How many there are at most."""
        return self.min if self.max is None else self.max


class Prefill(Part):
    """How caches get from replicas that prefill to those that decode."""

    bandwidth: _BytesPerS = Field(description="of one prefill replica's link, e.g. 400Gb/s")
    latency: _Seconds = Field(0.0, description="before the first byte")
    apart_from: int = Field(
        0,
        ge=0,
        description="with fewer tokens to compute, a prompt is computed where it is decoded",
    )


class Simulated(Part):
    """For simulations only."""

    speculation: SimulatedSpeculation | None = None
    tiers: list[TierSpec] = Field(
        default_factory=list, description="behind the cache, the nearest first"
    )
    reload: Literal["quicker", "load", "recompute"] = Field(
        "quicker", description="of what is in a tier: whichever is quicker, or always the one"
    )
    adapters: AdaptersSpec | None = None
    scaling: Literal["ridgeline", "kpa", "ray", "hpa", "keda"] = Field(
        "ridgeline", description="whose formula scales it: another system's, to compare with"
    )
    role: RoleName = Field("both", description="what the model's own replicas do of a request")
    groups: list[Group] = Field(default_factory=list, description="more kinds of replicas")
    prefill: Prefill | None = Field(None, description="of replicas with role: prefill")

    @model_validator(mode="after")
    def _has_roles(self) -> Self:
        names = [group.name for group in self.groups]
        if len(set(names)) < len(names):
            raise ValueError("groups: two have one name")
        roles = {self.role, *(group.role for group in self.groups)}
        if ("prefill" in roles) != (self.prefill is not None):
            raise ValueError("prefill says how caches travel from replicas with role: prefill")
        return self

    @model_validator(mode="after")
    def _has_tiers(self) -> Self:
        names = [tier.name for tier in self.tiers]
        if len(set(names)) < len(names):
            raise ValueError("tiers: two have one name")
        if self.reload != "quicker" and not self.tiers:
            raise ValueError("reload is of tiers: there are none")
        return self
