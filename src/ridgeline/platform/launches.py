"""How the replicas of a model are started on this machine: from its spec to a command line."""

import re
from collections.abc import Callable
from pathlib import Path

from ridgeline.catalog.packaged import find_model
from ridgeline.launch.local import cores
from ridgeline.paths import state_home
from ridgeline.serving.control.replicas import Launch
from ridgeline.serving.spec import FakeEngine, ModelSpec, RidgelineEngine
from ridgeline.spec import Platform


def launch_of(
    platform: Platform, model: ModelSpec, logs: Path, *, label: str = ""
) -> Callable[[int], Launch]:
    """The launch of a model's replica of each number. `label` tells versions of a model apart.

    Raises ModelError where its weights are not here.
    """
    if isinstance(model.engine, FakeEngine):
        arguments = ["fake-replica", *_fake_arguments(model, model.engine)]
    else:
        arguments = ["serve", *_arguments(model, _threads(platform))]
    name = f"{model.name}{label}"
    folder = _in_one_folder(name)
    usage = state_home() / platform.name / "usage"

    def launch(number: int) -> Launch:
        own = ["--usage-log", str(usage / f"{folder}-{number}")]
        log = logs / f"{folder}-{number}.log"
        return Launch(f"{name}-{number}", [*arguments, *own], log, {})

    return launch


def _threads(platform: Platform) -> int:
    """The cores for one replica where its model does not say: all are shared evenly."""
    ours = (one for one in platform.models if isinstance(one.engine, RidgelineEngine))
    return max(1, cores() // max(1, sum(model.replicas.most for model in ours)))


def _in_one_folder(name: str) -> str:
    """A model's name as a file's: `org/model` and worse must not lead elsewhere."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")


def _arguments(model: ModelSpec, threads: int) -> list[str]:
    """What `ridgeline serve` is told about this model."""
    engine = model.engine
    assert isinstance(engine, RidgelineEngine)
    assert model.model is not None
    options = {
        "--name": model.name,
        "--host": "127.0.0.1",
        "--port": 0,
        "--dtype": engine.dtype,
        "--kv-cache-dtype": engine.kv_cache_dtype,
        "--threads": engine.threads or threads,
        "--max-model-len": engine.max_model_len,
        "--max-seqs": engine.max_seqs,
        "--max-batched-tokens": engine.max_batched_tokens,
        "--kv-cache": engine.kv_cache,
        "--speculation": engine.speculation,
        "--draft-tokens": engine.draft_tokens,
    }
    caching = "--prefix-caching" if engine.prefix_caching else "--no-prefix-caching"
    return [str(find_model(model.model)), *_told(options), caching]


def _fake_arguments(model: ModelSpec, engine: FakeEngine) -> list[str]:
    """What `ridgeline fake-replica` is told."""
    options: dict[str, object] = {
        "--name": model.name,
        "--host": "127.0.0.1",
        "--port": 0,
        "--step-ms": engine.step * 1e3,
        "--step-ms-per-seq": engine.step_per_seq * 1e3,
        "--prefill-tokens-per-s": engine.prefill_tokens_per_s,
        "--kv-tokens": engine.kv_tokens,
        "--max-seqs": engine.max_seqs,
        "--starting-s": engine.starting,
        "--loading-s": engine.loading,
    }
    if engine.accelerator is not None:
        options |= {"--model": model.model, "--accelerator": engine.accelerator}
    return [*_told(options), *(part for one in engine.faults for part in ("--fail", one))]


def _told(options: dict[str, object]) -> list[str]:
    return [str(part) for option in options.items() for part in option]
