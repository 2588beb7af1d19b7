"""platform.yaml becomes one typed object; complaints name the field, the problem and a remedy.

Composes the floors' specs (serving today). Called by the command line.
"""

import difflib
import re
from collections.abc import Hashable
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from ridgeline.errors import SpecError
from ridgeline.serving.spec import GatewaySpec, ModelSpec, Seconds
from ridgeline.serving.spec_part import Part
from ridgeline.serving.tenant_spec import TenantSpec, Usd

#: A platform's name, as a host's: it names folders and is typed.
NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


class SpotSpec(Part):
    """Machines that their owner takes back."""

    per_hour: float = Field(gt=0, le=60, description="how often each is taken back in an hour")
    notice: Seconds = Field(120.0, description="from saying so to taking it")


class RegionSpec(Part):
    """A place with gateways and hardware of its own, for simulations."""

    name: str = Field(min_length=1, description="what `hardware[].region` says")
    away: dict[str, Seconds] = Field(
        default_factory=dict, description="a round trip to other regions, e.g. {us: 80ms}"
    )
    clients: list[str] = Field(
        default_factory=list, description="tenants that ask from here; all others from the first"
    )
    keeps: list[str] = Field(
        default_factory=list, description="tenants whose data stays here, or where else it says so"
    )


class HardwareSpec(Part):
    """Machines of one kind, for plans and simulations."""

    name: str = Field(min_length=1, description="what `models[].on` says")
    accelerator: str = Field(description="a catalog id; `ridgeline catalog list` has them")
    nodes: int = Field(1, ge=1)
    gpus_per_node: int = Field(8, ge=1)
    usd_per_gpu_hour: Usd = Field(Decimal(0), description="what one accelerator costs")
    region: str | None = Field(None, description="one of `regions`; the first where not set")
    spot: SpotSpec | None = Field(None, description="where its owner takes it back at times")

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.nodes * self.gpus_per_node


class Platform(Part):
    """One description of a platform."""

    name: str = Field("platform", pattern=NAME, max_length=63)
    hardware: list[HardwareSpec] = Field(
        default_factory=list, description="what plans and simulations may use"
    )
    regions: list[RegionSpec] = Field(
        default_factory=list, description="where simulations have gateways; one where none is named"
    )
    models: list[ModelSpec] = Field(min_length=1, description="what is served")
    tenants: list[TenantSpec] = Field(
        default_factory=list, description="who asks, with limits and budgets"
    )
    gateway: GatewaySpec = Field(default_factory=GatewaySpec)
    spares: int = Field(
        0, ge=0, le=16, description="processes that have imported all and wait to be a replica"
    )

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [model.name for model in self.models]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two models are called {name!r}: clients could not tell them")
        for model in self.models:
            if model.on is not None and model.on not in {one.name for one in self.hardware}:
                raise ValueError(f"{model.name} is on {model.on!r}, which is no `hardware`")
        self._check_regions()
        if self.spares and not any(one.engine.kind == "ridgeline" for one in self.models):
            raise ValueError("spares become replicas of our own engine, and no model has it")
        tenants = [tenant.name for tenant in self.tenants]
        for name in tenants:
            if tenants.count(name) > 1:
                raise ValueError(f"two tenants are called {name!r}: usage could not be told apart")
        return self

    def _check_regions(self) -> None:
        """ValueError for a name that is nowhere."""
        regions = [region.name for region in self.regions]
        if len(set(regions)) < len(regions):
            raise ValueError("two regions have one name")
        for one in self.hardware:
            if one.region is not None and one.region not in regions:
                raise ValueError(f"hardware {one.name} is in {one.region!r}, which is no region")
        tenants = {tenant.name for tenant in self.tenants}
        asking = [name for region in self.regions for name in region.clients]
        if len(set(asking)) < len(asking):
            raise ValueError("regions: a tenant's clients are in one of them")
        for region in self.regions:
            for name in region.away:
                if name not in regions:
                    raise ValueError(f"{region.name} is away from {name!r}, which is no region")
            for name in (*region.clients, *region.keeps):
                if name not in tenants:
                    raise ValueError(f"region {region.name} names {name!r}, which is no tenant")


def load(path: Path) -> Platform:
    """Read a spec; SpecError lists every complaint (file, field, problem, remedy)."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(
            f"cannot be read: {error.strerror}", where=str(path), remedy="ridgeline init"
        ) from error
    except UnicodeDecodeError as error:
        raise SpecError("is not UTF-8 text", where=str(path), remedy="save it as UTF-8") from error
    return parse(text, name=path.name)


def parse(text: str, *, name: str) -> Platform:
    """A spec from its text; `name` is the file that complaints speak of."""
    data = _yaml(text, name)
    if not isinstance(data, dict):
        raise SpecError("is not a mapping of keys", where=name, remedy="ridgeline init")
    return checked(data, name=name)


def checked(data: dict[str, Any], *, name: str) -> Platform:
    """A spec from its keys; `name` is what complaints speak of."""
    try:
        return Platform.model_validate(data)
    except ValidationError as error:
        complaints = [_complaint(one, name) for one in error.errors()]
        raise SpecError("\n".join(str(one) for one in complaints)) from error


def json_schema() -> dict[str, Any]:
    """The spec's JSON schema, for editors that check YAML while one types."""
    schema = Platform.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


class Loader(yaml.SafeLoader):
    """YAML without surprises, as its version 1.2 has it: `on`, `off`, `yes` and `no` are words.

    A key written twice is an error, not the last one's win.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the class above has it
        first: [(tag, form) for tag, form in some if tag != "tag:yaml.org,2002:bool"]
        for first, some in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """As every YAML loader does, but a key that is there twice is an error."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} stands here twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def _yaml(text: str, name: str) -> object:
    try:
        return yaml.load(text, Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{name}, line {mark.line + 1}" if mark else name
        raise SpecError(str(error.problem), where=where, remedy="mend the YAML there") from error
    except yaml.YAMLError as error:
        raise SpecError(f"is not YAML: {error}", where=name, remedy="ridgeline init") from error


def _complaint(error: Any, name: str) -> SpecError:
    """One of pydantic's errors in the house's form."""
    # A discriminated union puts its tag into the location; a reader of the file never wrote it.
    steps = [step for step in error["loc"] if step not in ("ridgeline", "fake", "url")]
    where = f"{name}, {_dotted(steps)}" if steps else name
    if error["type"] == "extra_forbidden":
        return SpecError("unknown key", where=where, remedy=_nearest(str(steps[-1]), steps[:-1]))
    if error["type"] == "missing":
        return SpecError("is missing", where=where, remedy="ridgeline init shows every key")
    problem = error["msg"].removeprefix("Value error, ")
    problem = problem[0].lower() + problem[1:]
    given = error["input"]
    if isinstance(given, str | int | float | bool):
        shown = repr(given) if isinstance(given, str) else str(given).lower()
        if shown not in problem:
            problem = f"{shown}: {problem}"
    return SpecError(problem, where=where, remedy=_remedy(error))


def _remedy(error: Any) -> str:
    """What to write instead, where pydantic knows it."""
    limits = error.get("ctx", {})
    match error["type"]:
        case "greater_than_equal":
            return f"{limits['ge']} or more"
        case "greater_than":
            return f"more than {limits['gt']}"
        case "literal_error":
            return f"one of: {limits['expected']}"
        case "union_tag_invalid":
            return f"one of: {limits['expected_tags']}"
        case "string_pattern_mismatch":
            return "lower-case letters, digits and hyphens"
    return ""


def _dotted(steps: list[Any]) -> str:
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def _nearest(key: str, steps: list[Any]) -> str:
    """The known key that was meant, or all that are known at this place."""
    known = _known_keys(steps)
    close = difflib.get_close_matches(key, known, n=1)
    return f"{close[0]!r} (nearest)" if close else f"one of: {', '.join(known)}"


def _known_keys(steps: list[Any]) -> list[str]:
    """The keys that the schema allows at a place in the file."""
    schema = json_schema()
    definitions = schema["$defs"]
    places = [schema]
    for step in steps:
        inner = [
            place["items"] if isinstance(step, int) else place["properties"][step]
            for place in places
            if "items" in place or step in place.get("properties", {})
        ]
        places = [found for one in inner for found in _resolve(one, definitions)]
    return sorted({key for place in places for key in place.get("properties", {})})


def _resolve(place: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    if "$ref" in place:
        return [definitions[place["$ref"].rpartition("/")[2]]]
    options = place.get("oneOf") or place.get("anyOf")
    if not options:
        return [place]
    return [one for option in options for one in _resolve(option, definitions)]
