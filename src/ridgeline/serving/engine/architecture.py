"""The shape of a decoder-only transformer, as the model file needs to know it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3's rescaling of rotary frequencies for contexts beyond the original one.

    Source: the reference implementation published with Llama 3.1 (low frequencies are divided
    by `factor`, high ones kept, those between interpolated).
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """Llama, Qwen2, Qwen3 and Mistral, told apart by what they switch on, not by name.

    `context` is the longest sequence in tokens the model was made for (already cut to a sliding
    window where the model has one that we do not implement). `qkv_bias`: Qwen2. `qk_norm`:
    Qwen3. `eos_ids`: every token that ends a sequence.
    """

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    rope_theta: float
    rms_eps: float
    rope_scaling: RopeScaling | None = None
    tied_head: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values a token needs over all layers, at two bytes an element."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 2
