"""How the replicas of a model are started on this machine: from its spec to a command line."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.launch.local import cores
from ridgeline.paths import state_home
from ridgeline.platform.devices import Devices
from ridgeline.serving.control.foreign import ForeignLaunch
from ridgeline.serving.control.programs import program_of
from ridgeline.serving.control.replicas import Launch, Startable
from ridgeline.serving.control.spares import SparedLaunch, Spares
from ridgeline.serving.models.references import is_reference
from ridgeline.serving.models.weights import told, weights
from ridgeline.serving.spec import FakeEngine, ModelSpec, RidgelineEngine, ServerEngine
from ridgeline.serving.usage_log import in_one_folder
from ridgeline.spec import Platform


def launch_of(
    platform: Platform,
    model: ModelSpec,
    logs: Path,
    *,
    label: str = "",
    spares: Spares | None = None,
) -> Callable[[int], Startable]:
    """The launch of a model's replica of each number. `label` tells versions of a model apart.

    Where it can be one of the `spares`, it is.

    Raises ModelError where its weights are not here.
    """
    name = f"{model.name}{label}"
    folder = in_one_folder(name)
    if isinstance(model.engine, ServerEngine):
        return _foreign_launch(model, name, logs / folder)
    if isinstance(model.engine, FakeEngine):
        arguments = ["fake-replica", *_fake_arguments(model, model.engine)]
        spares = None
    else:
        if _is_encoder(model):
            spares = None  # they have imported what generates
        arguments = ["serve", *_arguments(model, _threads(platform))]
    usage = state_home() / platform.name / "usage"

    def launch(number: int) -> Startable:
        own = ["--usage-log", str(usage / f"{folder}-{number}")]
        log = logs / f"{folder}-{number}.log"
        launch = Launch(f"{name}-{number}", [*arguments, *own], log, {})
        return launch if spares is None else SparedLaunch(launch, spares)

    return launch


def _is_encoder(model: ModelSpec) -> bool:
    """Whether its weights compute embeddings."""
    from ridgeline.serving.engine.encoder_files import is_encoder

    assert model.model is not None, "an engine of our own has weights"
    with weights(model.model) as path:
        return is_encoder(path)


def _foreign_launch(model: ModelSpec, name: str, log: Path) -> Callable[[int], Startable]:
    """The same for vLLM or SGLang. LaunchError where it or its devices are not here."""
    program, devices = program_of(model, _where(model)), _devices(model)

    def launch(number: int) -> Startable:
        own = log.with_name(f"{log.name}-{number}.log")
        return ForeignLaunch(f"{name}-{number}", program, own, lambda: _Lent(devices, model))

    return launch


class _Lent:
    """What is one replica's own until it is gone: its devices, and its version in the store."""

    def __init__(self, devices: Devices, model: ModelSpec) -> None:
        self._held = ExitStack()
        if model.model is not None and is_reference(model.model):
            self._held.enter_context(weights(model.model))
        try:
            loan = devices.borrow()
        except BaseException:
            self._held.close()
            raise
        self._held.callback(loan.close)
        self.env = loan.env

    def close(self) -> None:
        """Others may have them."""
        self._held.close()


def has_devices(model: ModelSpec) -> bool:
    """Whether one more replica of it would get its devices now."""
    try:
        return _devices(model).has_room()
    except RidgelineError:  # there are not so many, or the driver does not answer
        return False


def _devices(model: ModelSpec) -> Devices:
    """The devices of which each replica of the model gets some. SpecError, LaunchError."""
    engine = model.engine
    if not isinstance(engine, ServerEngine):
        return Devices((), 0)
    wanted = None if engine.devices == "auto" else engine.devices
    return Devices.of(engine.tensor_parallel, wanted, model.replicas.most, _where(model))


def _where(model: ModelSpec) -> str:
    return f"models {model.name}.engine"


def _threads(platform: Platform) -> int:
    """The cores for one replica where its model does not say: all are shared evenly."""
    ours = (one for one in platform.models if isinstance(one.engine, RidgelineEngine))
    return max(1, cores() // max(1, sum(model.replicas.most for model in ours)))


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
    return [told(model.model), *_told(options), caching]


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
