"""What other engines are told, and what their logs tell: vLLM and SGLang.

Law of this file: it alone knows their options and words. `platform.launches` asks it for a
`Program`; `foreign` runs that.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ridgeline.catalog.packaged import PACKAGED, find_model
from ridgeline.errors import LaunchError
from ridgeline.serving.control.foreign import Program
from ridgeline.serving.models.references import is_reference
from ridgeline.serving.models.weights import model_store
from ridgeline.serving.spec import ModelSpec, SglangEngine, VllmEngine

_HOST = "127.0.0.1"
#: How a name begins that is a place on this machine, or one of the model store.
_HERE = ("/", ".", "~", "sha256:", "store:")
#: Our words for number formats, and theirs. fp8 as `dtype` is a kind of quantization to them.
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


@dataclass(frozen=True, slots=True)
class _Options:
    """One program's words for what a spec says, and for what its log says."""

    serve: tuple[str, ...]
    tensor_parallel: str
    max_model_len: str
    max_seqs: str
    memory_share: str
    fp8_cache: str
    always: tuple[str, ...]
    marks: tuple[tuple[str, str], ...]
    env: tuple[tuple[str, str], ...]
    install: str


_VLLM = _Options(
    serve=("serve",),
    tensor_parallel="--tensor-parallel-size",
    max_model_len="--max-model-len",
    max_seqs="--max-num-seqs",
    memory_share="--gpu-memory-utilization",
    fp8_cache="fp8",
    always=(),
    marks=(("Starting to load model", "weights"), ("Loading weights took", "warm-up")),
    # A key of somebody else's would shut us out.
    env=(("VLLM_API_KEY", ""),),
    install="pip install vllm, into an environment of its own",
)
_SGLANG = _Options(
    serve=("serve", "--model-path"),
    tensor_parallel="--tensor-parallel-size",
    max_model_len="--context-length",
    max_seqs="--max-running-requests",
    memory_share="--mem-fraction-static",
    fp8_cache="fp8_e4m3",
    always=("--enable-metrics",),
    marks=(("Load weight begin", "weights"), ("Load weight end", "warm-up")),
    env=(),
    install="pip install sglang, into an environment of its own",
)


def program_of(model: ModelSpec, where: str) -> Program:
    """How this model's engine is run. LaunchError where its program is not here."""
    engine = model.engine
    assert isinstance(engine, VllmEngine | SglangEngine)
    assert model.model is not None
    options = _VLLM if isinstance(engine, VllmEngine) else _SGLANG
    return Program(
        kind=engine.kind,
        command=_command(model.name, _weights(model.model), engine, options, where),
        env={**dict(options.env), **engine.env},
        marks=options.marks,
        serves=model.name,
    )


def _command(
    name: str, weights: str, engine: VllmEngine | SglangEngine, options: _Options, where: str
) -> Callable[[int], list[str]]:
    start = [_found(engine.command or engine.kind, options.install, where), *options.serve, weights]
    told = _told(engine, options)

    def command(port: int) -> list[str]:
        place = ["--host", _HOST, "--port", str(port), "--served-model-name", name]
        return [*start, *place, *told, *options.always, *engine.args]

    return command


def _told(engine: VllmEngine | SglangEngine, options: _Options) -> list[str]:
    """What the spec says, as options; what it leaves open is left open."""
    told = [options.tensor_parallel, str(engine.tensor_parallel)]
    told += [options.max_seqs, str(engine.max_seqs)]
    if engine.dtype == "fp8":
        told += ["--quantization", "fp8"]
    elif engine.dtype != "auto":
        told += ["--dtype", _DTYPES[engine.dtype]]
    if engine.kv_dtype != "auto":
        told += ["--kv-cache-dtype", options.fp8_cache]
    if engine.max_model_len:
        told += [options.max_model_len, str(engine.max_model_len)]
    if engine.memory_share is not None:
        told += [options.memory_share, str(engine.memory_share)]
    return told


def _weights(named: str) -> str:
    """A file or folder that is here by its whole path; any other name is the program's to find."""
    if is_reference(named):
        return str(model_store().resolve(named))
    here = named in PACKAGED or named.startswith(_HERE) or Path(named).exists()
    return str(find_model(named)) if here else named


def _found(program: str, install: str, where: str) -> str:
    path = shutil.which(Path(program).expanduser())
    if path is None:
        raise LaunchError(
            f"the program {program!r} is not here",
            where=f"{where}.command",
            remedy=f"{install}; and command: /that/environment/bin/{Path(program).name}",
        )
    return str(Path(path).absolute())
