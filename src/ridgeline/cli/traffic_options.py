"""What `ridgeline simulate` is told to ask: a trace, a workload file, or a workload of options."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ridgeline.errors import SpecError

if TYPE_CHECKING:
    from ridgeline.serving.simulate.traffic import Traffic
    from ridgeline.spec import Platform
    from ridgeline.workload import Trace

WORKLOAD_REQUESTS = 1_000
#: Near its limit a platform's backlog grows slowly: that takes longer to be seen.
SEARCHED_REQUESTS = 5_000
#: What means nothing beside what is asked.
_IDLE = {
    "workload": (
        "trace", "speed", "rate", "profile", "arrivals", "prompt", "output", "clients", "think_s",
        "requests", "tenants",
    ),
    "trace": ("rate", "profile", "arrivals", "prompt", "output"),
    "clients": ("profile", "arrivals"),
    "rate": ("speed", "think_s"),
}  # fmt: skip


def traffic_of(platform: "Platform", given: dict[str, Any]) -> "Traffic":
    """What is asked. SpecError where the options do not go together."""
    from ridgeline.serving.simulate.clients import Manners
    from ridgeline.serving.simulate.traffic import Loop, Traffic

    names = [one.name for one in platform.models]
    model = given["model"] or names[0]
    if model not in names:
        raise SpecError(
            f"{model!r} is no model of the spec", where="--model", remedy=", ".join(names)
        )
    _refuse_idle(given)
    clients, tenants = given["clients"], parse_tenants(given["tenants"] or "")
    loop = None if clients is None else Loop(clients, given["think_s"])
    manners = Manners(given["retries"], given["patience_s"])
    if given["workload"] is not None:
        return _streams(names, model, given, manners)
    if given["trace"] is not None:
        trace = _trace(names, given, loop is not None)
        if tenants and any(one.tenant for one in trace.requests):
            raise SpecError(
                f"{trace.name} has tenants of its own", where="--tenants", remedy="leave it out"
            )
        return Traffic(trace, model, loop, manners, tenants)
    return Traffic(_seeded(given), model, loop, manners, tenants)


def parse_tenants(text: str, *, where: str = "--tenants") -> tuple[tuple[str, float], ...]:
    """Read "a:0.7,b:0.3": names with their shares, which need not add up to 1; SpecError."""
    if not text:
        return ()
    pairs = [one.rpartition(":") for one in text.split(",")]
    try:
        told = tuple((name.strip(), float(share)) for name, _, share in pairs)
    except ValueError:
        told = (("", 0.0),)
    names = {name for name, _ in told}
    if "" in names or len(names) < len(told) or not all(0 < share < 1e9 for _, share in told):
        raise SpecError(
            f"{text!r} are no tenants with shares", where=where, remedy="search:0.7,night:0.3"
        )
    return told


def _refuse_idle(given: dict[str, Any]) -> None:
    """SpecError for an option that was given and would change nothing."""
    context = click.get_current_context(silent=True)
    way = next((one for one in _IDLE if given[one] is not None), None)
    if context is None or way is None:
        return
    for option in _IDLE[way]:
        if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            raise SpecError(
                f"means nothing beside --{way}",
                where=f"--{option.replace('_', '-')}",
                remedy="--speed" if (way, option) == ("trace", "rate") else "leave it out",
            )


def _streams(names: list[str], model: str, given: dict[str, Any], manners: Any) -> "Traffic":
    from ridgeline.platform.workload_file import read_workload
    from ridgeline.serving.simulate.traffic import Traffic

    return Traffic(read_workload(given["workload"], names), model, None, manners)


def _trace(names: list[str], given: dict[str, Any], is_loop: bool) -> "Trace":
    from ridgeline.workload import read_trace

    trace = read_trace(
        given["trace"], speed=given["speed"], limit=given["requests"], seed=given["seed"]
    )
    if not is_loop and not trace.timed:
        raise SpecError(
            f"{trace.name} has no times", where="--trace", remedy="--clients N, a closed loop"
        )
    if given["model"]:  # it is asked, whatever the trace names
        if trace.models:
            one_for_all = tuple(replace(one, model="") for one in trace.requests)
            trace = replace(trace, requests=one_for_all)
        return trace
    for model in trace.models:
        if model not in names:
            raise SpecError(
                f"{trace.name} asks the model {model!r}, which the spec has not",
                where="--trace",
                remedy=f"--model NAME asks one for all of it: {', '.join(names)}",
            )
    return trace


def _seeded(given: dict[str, Any]) -> Any:
    from ridgeline.serving.simulate.profile import parse_profile
    from ridgeline.serving.simulate.traffic import Seeded
    from ridgeline.workload import parse_arrivals, parse_sizes

    rate, is_loop = given["rate"], given["clients"] is not None
    if given["profile"] and rate is None:
        raise SpecError("needs a rate", where="--profile", remedy="--rate")
    if (rate is None) is not is_loop:
        raise SpecError(
            "what is asked?",
            where="simulate",
            remedy="--trace (`--trace example` is there), --workload, --rate or --clients",
        )
    return Seeded(
        parse_arrivals(given["arrivals"]),
        parse_sizes(given["prompt"], where="--prompt"),
        parse_sizes(given["output"], where="--output"),
        rate or 0.0,
        given["requests"] or (SEARCHED_REQUESTS if given["find"] else WORKLOAD_REQUESTS),
        parse_profile(given["profile"]) if given["profile"] else None,
    )
