"""What a spec says of an engine for simulations only, as the simulator's values."""

from collections.abc import Iterable
from dataclasses import replace

from ridgeline.errors import SpecError
from ridgeline.physics.step_time import StepTime
from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.policy.acceptance_alarm import Expected
from ridgeline.serving.simulate.adapters import Adapters
from ridgeline.serving.simulate.guesses import Guessing
from ridgeline.serving.simulate.setup import Engine
from ridgeline.serving.simulate.tiers import Tier, Tiers
from ridgeline.serving.simulated_spec import AdaptersSpec, Simulated, SimulatedSpeculation
from ridgeline.serving.spec import ModelSpec, RidgelineEngine

_DEFAULT = "default"


def with_simulated(engine: Engine, spec: ModelSpec, tenants: Iterable[str]) -> Engine:
    """The engine with its guesses, tiers and adapters.

    Raises SpecError for what does not go together.
    """
    told, where = spec.simulated or Simulated(), f"models {spec.name}.simulated"
    names = {*tenants, *(told.adapters.shares if told.adapters else ())}
    engine = replace(engine, guessing=_guessing(spec, told.speculation, names, where))
    if told.adapters is not None:
        engine = _with_adapters(engine, told.adapters, where)
    if told.tiers:
        engine = _with_tiers(engine, told, where)
    return engine


def _guessing(
    spec: ModelSpec, told: SimulatedSpeculation | None, names: set[str], where: str
) -> Guessing | None:
    where, engine = f"{where}.speculation", spec.engine
    drafts = told.draft_tokens if told is not None else None
    if isinstance(engine, RidgelineEngine):
        if (engine.speculation == "off") != (told is None):
            raise SpecError(
                "how often guesses hold decides what engine.speculation does; both or neither",
                where=where,
                remedy="engine: {speculation: ngram} and simulated: {speculation: {acceptance: …}}",
            )
        if drafts is not None:
            raise SpecError(
                "draft_tokens of our own engine are the engine's",
                where=f"{where}.draft_tokens",
                remedy="engine: {draft_tokens: …}",
            )
        drafts = engine.draft_tokens
    if told is None:
        return None
    if drafts is None:
        raise SpecError(
            "is missing: how many guesses there are in a row",
            where=f"{where}.draft_tokens",
            remedy="draft_tokens: 4",
        )
    shares = told.acceptance
    if isinstance(shares, dict):
        if unknown := sorted(set(shares) - names - {_DEFAULT}):
            known = ", ".join(sorted({*names, _DEFAULT}))
            raise SpecError(
                f"{unknown[0]!r} is no adapter and no tenant",
                where=f"{where}.acceptance",
                remedy=f"one of: {known}",
            )
        if _DEFAULT not in shares:
            raise SpecError(
                "says nothing of all others",
                where=f"{where}.acceptance",
                remedy=f"{_DEFAULT}: 0.7 beside the names",
            )
        shares = {"" if name == _DEFAULT else name: share for name, share in shares.items()}
    expected = Expected(told.expected) if told.expected is not None else None
    return Guessing(shares, drafts, told.draft_cost, told.rule, told.off_above, expected)


def _with_adapters(engine: Engine, told: AdaptersSpec, where: str) -> Engine:
    """Their slots take room from the cache, and a step reads each different one."""
    steps, where = engine.machine.steps, f"{where}.adapters"
    token_bytes = _token_bytes(engine, where)
    assert isinstance(steps, StepTime), "what has bytes has a model"
    left = engine.machine.kv_tokens - int(told.slots * told.size / token_bytes)
    if left < engine.block_tokens:
        raise SpecError(
            f"{told.slots} of {told.size:,} bytes leave no room for a cache",
            where=f"{where}.slots",
            remedy="fewer slots",
        )
    adapters = Adapters(
        told.shares, told.slots, told.size / told.bandwidth, float(steps.weights_s(told.size))
    )
    smaller = replace(engine.machine, kv_tokens=left)
    return replace(engine, machine=smaller, adapters=adapters)


def _with_tiers(engine: Engine, told: Simulated, where: str) -> Engine:
    where = f"{where}.tiers"
    _token_bytes(engine, where)
    if not engine.prefix_caching:
        raise SpecError(
            "keep what a prefix cache finds, and it is off", where=where, remedy="leave them out"
        )
    tiers = [Tier(one.name, one.size, one.bandwidth, one.latency) for one in told.tiers]
    return replace(engine, tiers=Tiers(tuple(tiers), told.reload))


def _token_bytes(engine: Engine, where: str) -> float:
    machine: Machine = engine.machine
    if not machine.cache_bytes_per_token or not isinstance(machine.steps, StepTime):
        raise SpecError(
            "need a model's sizes, and this engine has plain numbers",
            where=where,
            remedy="a model of the catalog `on` some hardware",
        )
    return machine.cache_bytes_per_token
