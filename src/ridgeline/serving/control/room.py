"""Whether this machine has the memory for one more replica of a model, before it is started."""

from pathlib import Path

from ridgeline.serving.models.weights import size
from ridgeline.serving.spec import ModelSpec, RidgelineEngine

_MEMINFO = Path("/proc/meminfo")
#: Weights in a file of four or five bits become 16 bits; and the process itself.
_WIDER = 4
_PROCESS_BYTES = 500_000_000


def room_for(spec: ModelSpec) -> bool:
    """Whether a replica fits into what is free now. True where that cannot be known."""
    free = _free_bytes()
    return free is None or needed_bytes(spec) <= free


def needed_bytes(spec: ModelSpec) -> int:
    """At most so much: weights, cache, process."""
    if not isinstance(spec.engine, RidgelineEngine) or spec.model is None:
        return 0
    weights, is_one_file = size(spec.model)
    wider = _WIDER if is_one_file else 1
    return weights * wider + spec.engine.kv_cache + _PROCESS_BYTES


def _free_bytes() -> int | None:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = (line.split() for line in lines if line.startswith("MemAvailable:"))
    return next((int(words[1]) * 1024 for words in found), None)
