"""How one fake replica is set up: sizes and names, no behaviour."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ridgeline.serving.fake.timing import Machine, Plain

#: Metrics by today's names of vLLM, by those it had before, or no `/metrics` at all.
MetricNames = Literal["vllm", "old", "none"]


@dataclass(frozen=True, slots=True)
class Setup:
    """One fake replica's settings.

    `time_scale` multiplies every time of the engine (0: as fast as this process can).
    `answer_tokens` is the length of an answer without max_tokens. `models` replaces what
    `/v1/models` lists. `loading_s` passes, unscaled, before `/ready` says yes.
    """

    name: str = "fake"
    machine: Machine = field(default_factory=lambda: Machine(Plain(), 400_000))
    time_scale: float = 1.0
    max_seqs: int = 256
    max_batched_tokens: int = 2048
    block_size: int = 16
    prefix_caching: bool = True
    max_model_len: int = 131_072
    answer_tokens: int = 128
    seed: int = 0
    loading_s: float = 0.0
    grace_s: float = 30.0
    api_key: str | None = None
    adapters: tuple[str, ...] = ()
    models: tuple[str, ...] | None = None
    metrics: MetricNames = "vllm"
    usage_log: Path | None = None
