"""How one engine is set up: sizes and switches, no behaviour."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One engine's settings.

    `model` is a GGUF file or a Hugging Face folder. `dtype` is "bf16", "fp32" or "int8"
    (weights and activations of the layers' products, W8A8), `kv_cache_dtype` "auto" (as the model
    computes) or "int8". `threads` 0 means every core this process may use. `max_batched_tokens` is
    the token budget of a step.
    `kv_cache_bytes` is the size of the whole paged cache; `max_model_len` 0 means what the model
    and the cache allow. `speculation` "ngram" guesses up to `draft_tokens` tokens of a sequence in
    a step from what it has said before, "off" none. `cache_dir` holds converted weights; None keeps
    none.
    """

    model: Path
    dtype: str = "bf16"
    kv_cache_dtype: str = "auto"
    threads: int = 0
    max_model_len: int = 0
    max_seqs: int = 64
    max_batched_tokens: int = 512
    kv_cache_bytes: int = 1_000_000_000
    block_size: int = 16
    prefix_caching: bool = True
    speculation: str = "off"
    draft_tokens: int = 8
    seed: int = 0
    cache_dir: Path | None = None
