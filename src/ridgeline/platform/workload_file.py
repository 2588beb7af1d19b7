"""A workload file becomes traffic: streams that ask several models as several tenants at once.

Complaints name the file, the field, the problem and a remedy, as those about platform.yaml do.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import AfterValidator, Field, ValidationError, model_validator

from ridgeline.errors import SpecError
from ridgeline.serving.simulate.profile import parse_profile
from ridgeline.serving.simulate.streams import Sessions, Stream
from ridgeline.serving.simulate.traffic import Streams
from ridgeline.serving.spec import Seconds
from ridgeline.serving.spec_part import Part
from ridgeline.spec import Loader
from ridgeline.workload import Trace, parse_arrivals, parse_sizes, read_trace

_MOST_BYTES = 1 << 20
#: Requests of a stream for which neither their number nor a time is given.
_REQUESTS = 1_000
#: What means nothing beside each way to ask.
_IDLE = {
    "trace": ("arrivals", "profile", "prompt", "output", "shared_prefix", "sessions", "think"),
    "clients": ("speed", "arrivals", "profile", "sessions", "from_s", "lasts"),
    "rate": ("speed", "think"),
}


def _as(parse: Callable[..., Any]) -> AfterValidator:
    """A text that some parser has to take; what it says of it is passed on."""

    def check(text: str) -> str:
        try:
            parse(text, where="")
        except SpecError as error:
            raise ValueError(f"{error.problem}; try {error.remedy}") from error
        return text

    return AfterValidator(check)


_Sizes = Annotated[str, Field(coerce_numbers_to_str=True), _as(parse_sizes)]
_Name = Annotated[str, Field(min_length=1, max_length=63)]


class SessionsPart(Part):
    """Conversations instead of single requests."""

    turns: _Sizes = Field("uniform:2:8", description="turns of each")
    think: Seconds = Field(0.0, description="from an answer's end to the next turn")


class StreamPart(Part):
    """Who asks whom for what, and how often."""

    name: _Name | None = Field(None, description="for reports; also of its chances")
    model: _Name | None = Field(None, description="as clients call it; else the first of the spec")
    tenant: _Name | None = Field(None, description="who asks")
    rate: float | None = Field(None, gt=0, le=1e6, description="requests (sessions) a second")
    clients: int | None = Field(None, ge=1, le=100_000, description="or so many, one request each")
    trace: str | None = Field(None, description="or a recorded trace, beside this file")
    speed: float = Field(1.0, ge=1e-6, le=1e6, description="of the trace")
    arrivals: Annotated[str, _as(parse_arrivals)] = "poisson"
    profile: Annotated[str, _as(parse_profile)] | None = None
    prompt: _Sizes = "lognormal:1000:0.8"
    output: _Sizes = "lognormal:200:0.8"
    shared_prefix: int = Field(0, ge=0, le=10_000_000, description="tokens all prompts begin with")
    sessions: SessionsPart | None = None
    think: Seconds = Field(0.0, description="of `clients`, between two requests")
    requests: int | None = Field(None, ge=1, description="it ends after so many")
    from_s: Seconds = Field(0.0, alias="from", description="it begins then")
    lasts: Seconds | None = Field(None, gt=0, description="it ends after so long")

    @model_validator(mode="after")
    def _means_something(self) -> Self:
        given = self.model_fields_set
        ways = [way for way in ("rate", "clients", "trace") if getattr(self, way) is not None]
        if len(ways) != 1:
            raise ValueError("says not how often it asks: one of rate, clients and trace")
        for field in _IDLE[ways[0]]:
            if field in given:
                raise ValueError(f"{field.removesuffix('_s')} means nothing beside {ways[0]}")
        return self


class WorkloadPart(Part):
    """The whole file."""

    lasts: Seconds | None = Field(None, gt=0, description="of every stream that does not say")
    streams: list[StreamPart] = Field(min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [_named(one, place) for place, one in enumerate(self.streams)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two streams are called {name!r}: give them a `name` each")
        return self


def read_workload(path: Path, models: Sequence[str], *, where: str = "--workload") -> Streams:
    """The streams of a file, for a platform that serves these models. Raises SpecError."""
    data = _yaml(path, where)
    try:
        told = WorkloadPart.model_validate(data)
    except ValidationError as error:
        raise SpecError("\n".join(_complaint(one, path.name) for one in error.errors())) from error
    streams = [_stream(one, place, told, path) for place, one in enumerate(told.streams)]
    for place, one in enumerate(streams):
        named = {one.model} if one.model else set(one.trace.models if one.trace else ())
        for model in sorted(named - set(models)):
            raise SpecError(
                f"{model!r} is no model of the spec",
                where=f"{path.name}, streams[{place}].model",
                remedy=f"one of: {', '.join(models)}",
            )
    return Streams(path.name, tuple(streams))


def _stream(told: StreamPart, place: int, whole: WorkloadPart, path: Path) -> Stream:
    field = f"{path.name}, streams[{place}]"
    requests, lasts_s = told.requests, told.lasts or whole.lasts
    if told.trace is None and requests is None and (lasts_s is None or told.clients):
        requests = _REQUESTS
    return Stream(
        _named(told, place),
        told.model or "",
        told.tenant or "",
        told.rate or 0.0,
        told.clients or 0,
        None if told.trace is None else _trace(told, path.parent, f"{field}.trace"),
        parse_arrivals(told.arrivals, where=""),
        None if told.profile is None else parse_profile(told.profile, where=""),
        parse_sizes(told.prompt, where=""),
        parse_sizes(told.output, where=""),
        told.shared_prefix,
        _sessions(told.sessions),
        told.think,
        told.from_s,
        lasts_s,
        requests,
    )


def _sessions(told: SessionsPart | None) -> Sessions | None:
    return None if told is None else Sessions(parse_sizes(told.turns, where=""), told.think)


def _named(told: StreamPart, place: int) -> str:
    return told.name or told.tenant or f"stream-{place}"


def _trace(told: StreamPart, folder: Path, where: str) -> Trace:
    assert told.trace is not None, where
    path = Path(told.trace)
    beside = folder / path
    chosen = beside if beside.exists() else path
    trace = read_trace(chosen, speed=told.speed, limit=told.requests, where=where)
    if not trace.timed:
        raise SpecError(f"{trace.name} has no times", where=where, remedy="a trace that has")
    return trace


def _yaml(path: Path, where: str) -> object:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}", where=where) from error
    if len(text) > _MOST_BYTES:
        raise SpecError("is over 1 MiB", where=str(path), remedy="--trace for a recorded trace")
    try:
        data: object = yaml.load(text, Loader)  # noqa: S506 - it is a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"{path.name}, line {mark.line + 1}" if mark else path.name
        problem = getattr(error, "problem", None) or str(error)
        raise SpecError(f"is not YAML: {problem}", where=line, remedy="mend it there") from error
    if not isinstance(data, dict):
        remedy = "streams: [{tenant: search, rate: 5, prompt: 800, output: 200}]"
        raise SpecError("is not a mapping of keys", where=path.name, remedy=remedy)
    return data


def _complaint(error: Any, name: str) -> str:
    """One of pydantic's errors in the house's form."""
    field = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in error["loc"])
    where = f"{name}, {field.removeprefix('.')}" if field else name
    part = SessionsPart if "sessions" in error["loc"] else StreamPart
    known = part if "streams" in error["loc"] else WorkloadPart
    problem = error["msg"].removeprefix("Value error, ")
    remedy = ""
    if error["type"] == "extra_forbidden":
        problem = "unknown key"
        names = (one.alias or name for name, one in known.model_fields.items())
        remedy = f"one of: {', '.join(names)}"
    elif error["type"] == "missing":
        problem = "is missing"
    problem, _, tried = problem.partition("; try ")
    return str(SpecError(problem[0].lower() + problem[1:], where=where, remedy=tried or remedy))
