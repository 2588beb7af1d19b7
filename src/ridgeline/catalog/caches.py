"""What a model keeps of each sequence, for every kind of attention, whole and on one rank.

A cache is a sum of parts: what grows with each token (`kv_bytes_per_token`), what is capped at a
window, and the states of linear attention. `cache_bytes` has them all. Under tensor parallelism
heads are split as far as they go and replicated beyond; a latent or a pooled vector serves all
heads, so every rank keeps it whole.
"""

from ridgeline.catalog.accelerators import dtype_bytes
from ridgeline.catalog.architecture import COMPRESSED, Architecture
from ridgeline.physics.size import (
    compressed_bytes_per_token,
    conv_state_bytes,
    index_bytes_per_token,
    kv_bytes_per_token,
    kv_bytes_per_token_per_rank,
    kv_heads_per_rank,
    latent_bytes_per_token,
    linear_state_bytes,
    window_bytes_per_token,
    window_cache_bytes,
)
from ridgeline.quantity import Number, Provenance, Quantity, ceil, given
from ridgeline.units import parse_unit

#: States are kept at fp32, inputs of convolutions at bf16 and index keys at fp8 whatever the type
#: of the cache: so do transformers, vLLM and SGLang.
STATE_DTYPE, CONV_DTYPE, INDEX_DTYPE = "fp32", "bf16", "fp8"


class Caches(Architecture):
    """An architecture that knows its caches."""

    def kv_bytes_per_token(self, dtype: str = "bf16") -> Quantity:
        """Cache that grows by this with each token, over all layers that grow."""
        if self._is_shared():
            return self._shared_bytes_per_token(dtype, 1.0)
        value = dtype_bytes(dtype)
        return kv_bytes_per_token(self.growing_layers, self.kv_heads, self.head_dim, value)

    def kv_bytes_per_token_per_rank(
        self, dtype: str, tensor_parallel: Number, pipeline_parallel: Number = 1.0
    ) -> Quantity:
        """What one rank keeps of it: KV heads are replicated past one a rank, latents always."""
        if self._is_shared():
            whole = self._shared_bytes_per_token(dtype, pipeline_parallel)
            told = "every rank of the tensor group keeps it: one vector serves all heads"
            return whole.named("kv_bytes_per_token_per_rank", note=told)
        return kv_bytes_per_token_per_rank(
            self.growing_layers,
            self.kv_heads,
            self.head_dim,
            dtype_bytes(dtype),
            tensor_parallel,
            pipeline_parallel,
        )

    def _is_shared(self) -> bool:
        return "kv_lora_rank" in self.attention or self.attention.get("kind") == "csa_hca"

    def _shared_bytes_per_token(self, dtype: str, stages: Number) -> Quantity:
        value = dtype_bytes(dtype)

        def held(layers: Quantity) -> Quantity:
            return ceil(layers / stages) if isinstance(stages, Quantity) or stages != 1 else layers

        if "kv_lora_rank" in self.attention:
            latent, rope = self._part("kv_lora_rank"), self._part("qk_rope_dim")
            return latent_bytes_per_token(held(self.growing_layers), latent, rope, value)
        streams = [
            compressed_bytes_per_token(
                held(self.layers_of(f"{kind}_layers", kind)),
                self.head_dim,
                self._ratio(kind),
                value,
            ).named(f"{kind}_bytes_per_token")
            for kind in self.layer_mix
            if kind in COMPRESSED
        ]
        return total(streams).named("kv_bytes_per_token")

    def _ratio(self, kind: str) -> Quantity:
        return self._value(f"{kind}_compression", {"csa": 4, "hca": 128}[kind])

    def _indexed(self) -> tuple[Quantity, Quantity]:
        """The layers that an indexer serves, and how many tokens one of its keys stands for."""
        if self.attention.get("kind") == "csa_hca":
            return self.layers_of("csa_layers", "csa"), self._ratio("csa")
        return self.layers, self._value("index_compression", 1)

    def index_bytes_per_token(self) -> Quantity:
        """Keys of the indexer of sparse attention, beside the cache; CatalogError without one."""
        if "indexer" not in self.attention:
            raise self._lacks("indexer", "has no sparse attention")
        layers, ratio = self._indexed()
        dim = self._value("index_dim", self.attention["indexer"]["dim"])
        return index_bytes_per_token(layers, dim, ratio, dtype_bytes(INDEX_DTYPE))

    def fixed_bytes_per_sequence(self, dtype: str = "bf16") -> Quantity:
        """What a long sequence keeps besides: windows at their full width, and states."""
        return self._fixed(dtype, None).named("fixed_bytes_per_sequence")

    def fixed_bytes_per_sequence_per_rank(self, dtype: str, tensor_parallel: Number) -> Quantity:
        """What one rank keeps of it."""
        fixed = self._fixed(dtype, tensor_parallel)
        return fixed.named("fixed_bytes_per_sequence_per_rank")

    def cache_bytes(self, context_tokens: Number, dtype: str = "bf16") -> Quantity:
        """All that one sequence keeps: what grows, capped windows, states, index keys."""
        grows = self.kv_bytes_per_token(dtype)
        return self._cache(grows, context_tokens, dtype, None).named("cache_bytes")

    def cache_bytes_per_rank(
        self, context_tokens: Number, dtype: str, tensor_parallel: Number
    ) -> Quantity:
        """All that one rank keeps of one sequence."""
        grows = self.kv_bytes_per_token_per_rank(dtype, tensor_parallel)
        cache = self._cache(grows, context_tokens, dtype, tensor_parallel)
        return cache.named("cache_bytes_per_rank")

    def _cache(
        self, grows: Quantity, context_tokens: Number, dtype: str, ranks: Number | None
    ) -> Quantity:
        context = tokens(context_tokens)
        parts = [grows * context]
        if "indexer" in self.attention:
            parts.append(self.index_bytes_per_token() * context)
        if self.attention.get("window"):
            parts.append(self._window_bytes(context, dtype, ranks))
        if self.linear_layers.value:
            parts += self._states(ranks)
        return total(parts)

    def _fixed(self, dtype: str, ranks: Number | None) -> Quantity:
        parts: list[Quantity] = []
        if self.attention.get("window"):
            parts.append(self._window_bytes(self.window_tokens, dtype, ranks))
        if self.linear_layers.value:
            parts += self._states(ranks)
        return total(parts) if parts else self._value("fixed_bytes_per_sequence", 0, "B")

    def _window_bytes(self, context: Quantity, dtype: str, ranks: Number | None) -> Quantity:
        value, width = dtype_bytes(dtype), self.head_dim
        if self.attention.get("kind") == "csa_hca":
            one = window_bytes_per_token(self.capped_layers, self.kv_heads, width, value, 1.0)
        else:
            heads = self.kv_heads if ranks is None else kv_heads_per_rank(self.kv_heads, ranks)
            one = window_bytes_per_token(self.capped_layers, heads, width, value)
        return window_cache_bytes(one, context, self.window_tokens)

    def _states(self, ranks: Number | None) -> list[Quantity]:
        split = 1.0 if ranks is None else ranks
        heads, key, wide = self._linear()
        channels = self._conv_channels()
        layers, kernel = self.linear_layers, self._part("conv_kernel")
        return [
            linear_state_bytes(layers, heads / split, key, wide, dtype_bytes(STATE_DTYPE)),
            conv_state_bytes(layers, channels / split, kernel, dtype_bytes(CONV_DTYPE)),
        ]

    def _linear(self) -> tuple[Quantity, Quantity, Quantity]:
        """Heads of linear attention, and the widths of a key and a value."""
        if "linear_heads" in self.attention:
            dim = self._part("linear_head_dim")
            return self._part("linear_heads"), dim, dim
        parts = ("linear_value_heads", "linear_key_dim", "linear_value_dim")
        heads, key, wide = (self._part(part) for part in parts)
        return heads, key, wide

    def _conv_channels(self) -> Quantity:
        heads, key, wide = self._linear()
        keys = heads if "linear_heads" in self.attention else self._part("linear_key_heads")
        both = given(
            2,
            name="queries_and_keys",
            provenance=Provenance.DEFINED,
            source="q and k are convolved like v",
        )
        return (both * keys * key + heads * wide).named("channels")


def tokens(number: Number) -> Quantity:
    """A number of tokens; a bare number or array is one that was given."""
    if isinstance(number, Quantity):
        return number
    return Quantity(number, parse_unit("tokens"), name="context", provenance=Provenance.GIVEN)


def total(parts: list[Quantity]) -> Quantity:
    """The sum; a single part is itself."""
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    return whole
