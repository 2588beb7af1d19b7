"""Models on machines whose step times were measured: `--step-times` of `ridgeline simulate`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ridgeline.errors import SpecError
from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.plan.step_file import StepTimes, read
from ridgeline.serving.simulate.setup import Model, Serving

_WHERE = "--step-times"


def machine_of(times: StepTimes) -> Machine:
    """The machine that was measured."""
    return Machine(times.table, times.kv_tokens)


def step_times(given: tuple[str, ...], models: tuple[str, ...]) -> dict[str, StepTimes]:
    """By model, what the files `[MODEL=]FILE` say.

    A file without a MODEL is of the one that it names, or of the only one that there is. Raises
    SpecError where a file cannot be believed, or it is not clear whose it is.
    """
    found: dict[str, StepTimes] = {}
    for text in given:
        name, _, path = text.rpartition("=")
        times = read(Path(path))
        name = name or (times.model if times.model in models or len(models) > 1 else models[0])
        if name not in models:
            raise SpecError(
                f"{text} is of the model {name}, which is not in the spec",
                where=_WHERE,
                remedy=f"{models[0]}={path}",
            )
        if name in found:
            raise SpecError(f"two files are of {name}", where=_WHERE, remedy="one of them")
        found[name] = times
    return found


def with_ways(serving: Serving, times: Mapping[str, StepTimes]) -> Serving:
    """The same, with the ways of requests and tokens as long as they were measured.

    `serving` was made with the machines of `times`. Raises SpecError for another block size: the
    cache would share other prompts than the engine's did.
    """
    return replace(serving, models=tuple(_model(one, times) for one in serving.models))


def _model(model: Model, times: Mapping[str, StepTimes]) -> Model:
    known = times.get(model.name)
    if known is None:
        return model
    engine = model.engine
    if known.block_tokens != engine.block_tokens:
        raise SpecError(
            f"{model.name} was measured with blocks of {known.block_tokens} tokens, the spec's "
            f"have {engine.block_tokens}",
            where=_WHERE,
            remedy="a file of an engine with these settings",
        )
    arrive_s, deliver_s = known.arrive_s.value, known.deliver_s.value
    return replace(model, engine=replace(engine, arrive_s=arrive_s, deliver_s=deliver_s))
