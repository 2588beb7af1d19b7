"""Models: what their architecture means in bytes of weights and in FLOPs; caches are in `caches`.

A model comes from the catalog by name, or from a Hugging Face config.json by its path.
"""

from pathlib import Path
from typing import Any

from ridgeline.catalog.accelerators import DTYPE_BITS, dtype_bytes
from ridgeline.catalog.caches import Caches, tokens, total
from ridgeline.catalog.hf_config import row_of
from ridgeline.catalog.rows import row, rows
from ridgeline.physics.attention import (
    attention_flop_per_token,
    chunked_attention_flop,
    index_flop_per_token,
    linear_flop_per_token,
    window_attention_flop,
)
from ridgeline.physics.size import (
    causal_attention_flop,
    forward_flop_per_token,
    weight_bytes,
    window_tokens,
)
from ridgeline.quantity import Number, Quantity, holds
from ridgeline.show import show

KIND = "models"


class Model(Caches):
    """One row of the catalog. Missing values raise CatalogError when they are asked for."""

    # Weights.

    def weights_bytes(self, dtype: str) -> Quantity:
        """All weights in one type; `native` is as the publisher ships them, types mixed."""
        if dtype == "native":
            return self._native_bytes()
        return weight_bytes(self.params, dtype_bytes(dtype))

    @property
    def native_dtypes(self) -> dict[str, str]:
        """The type of `experts` (routed), `embeddings` (with the head) and the `rest`, as shipped.

        Biases, norms and scales are counted at the type of what they belong to.
        """
        text = str(self.data.get("native_dtype", "bf16"))
        known: dict[str, str] = self.data.get("native_dtypes", {})
        return {"experts": text, "embeddings": text, "rest": text} | known

    def _native_bytes(self) -> Quantity:
        types = self.native_dtypes
        for dtype in types.values():
            if dtype not in DTYPE_BITS:
                known = ", ".join(DTYPE_BITS)
                raise self._lacks(
                    "native_dtype", f'ships as "{dtype}", which is no one type', known
                )
        if len(set(types.values())) == 1:
            return weight_bytes(self.params, dtype_bytes(types["rest"]))
        rest = self.dense_params - self.embedding_params
        if not holds(rest.value >= 0):
            told = f"has more embeddings than the {show(self.dense_params)} outside of experts"
            raise self._lacks("params", told, "set vocab as well, or one dtype for all weights")
        parts = {"experts": self.routed_params, "embeddings": self.embedding_params, "rest": rest}
        sizes = [
            (count * dtype_bytes(types[part])).named(f"{part}_weight_bytes")
            for part, count in parts.items()
            if part != "experts" or self.is_moe
        ]
        return total(sizes).named("native_weight_bytes")

    # FLOPs.

    def flop_per_token(self) -> Quantity:
        """Forward FLOPs of one token, attention scores apart."""
        return forward_flop_per_token(self.active_params)

    def decode_flop_per_token(self, context_tokens: Number) -> Quantity:
        """Forward FLOPs of one new token that looks back at a context, attention included."""
        attention = self.attention_flop_per_token(context_tokens)
        return (self.flop_per_token() + attention).named("decode_flop_per_token")

    def prefill_flop(self, prompt_tokens: Number) -> Quantity:
        """Forward FLOPs of a whole prompt: the weights' products, and its causal attention."""
        prompt = tokens(prompt_tokens)
        return (self.flop_per_token() * prompt + self.attention_flop(prompt)).named("prefill_flop")

    def attention_flop(self, prompt_tokens: Number) -> Quantity:
        """Attention over a prompt; causal, so each token sees half of it on average."""
        prompt = tokens(prompt_tokens)
        parts = [self._prompt(kind, prompt) for kind in self.layer_mix]
        if "indexer" in self.attention:
            parts.append(self._index_flop(prompt / 2) * prompt)
        return total(parts).named("attention_flop")

    def attention_flop_per_token(self, context_tokens: Number) -> Quantity:
        """Attention of one new token that looks back at a context, in the form engines decode in.

        Latent attention is decoded absorbed: queries and values work on the latent itself, which
        is wider than a head.
        """
        context = tokens(context_tokens)
        parts = [self._step(kind, context) for kind in self.layer_mix]
        if "indexer" in self.attention:
            parts.append(self._index_flop(context))
        return total(parts).named("attention_flop_per_token")

    def _prompt(self, kind: str, prompt: Quantity) -> Quantity:
        layers, heads, width = (
            self.layers_of(f"{kind}_layers", kind),
            self.heads,
            self.attention_width(kind),
        )
        match kind:
            case "bidirectional":
                return attention_flop_per_token(layers, heads, width, prompt) * prompt
            case "gated_deltanet" | "kda":
                return linear_flop_per_token(layers, *self._linear()) * prompt
            case "sliding":
                return window_attention_flop(layers, heads, width, prompt, self.window_tokens)
            case "chunked":
                return chunked_attention_flop(layers, heads, width, prompt, self.window_tokens)
            case "csa" | "hca":
                near = window_attention_flop(layers, heads, width, prompt, self.window_tokens)
                seen = self._reach(kind, prompt)
                far = window_attention_flop(layers, heads, width, prompt, seen) / self._ratio(kind)
                return near + far
            case "mla" if "indexer" in self.attention:
                seen = self._reach(kind, prompt)
                return window_attention_flop(layers, heads, width, prompt, seen)
            case _:
                return causal_attention_flop(layers, heads, width, prompt)

    def _step(self, kind: str, context: Quantity) -> Quantity:
        layers, heads = self.layers_of(f"{kind}_layers", kind), self.heads
        match kind:
            case "gated_deltanet" | "kda":
                return linear_flop_per_token(layers, *self._linear())
            case "sliding" | "chunked":
                seen = window_tokens(context, self.window_tokens)
            case "csa" | "hca":
                far = window_tokens(context, self._reach(kind, context)) / self._ratio(kind)
                seen = window_tokens(context, self.window_tokens) + far
            case "mla":
                seen = window_tokens(context, self._reach(kind, context))
                absorbed = self._part("kv_lora_rank") + self._part("qk_rope_dim") / 2
                return attention_flop_per_token(layers, heads, absorbed, seen)
            case _:
                seen = context
        return attention_flop_per_token(layers, heads, self.attention_width(kind), seen)

    def _reach(self, kind: str, context: Quantity) -> Quantity:
        """How far back sparse attention can pick from, as if what it picks were the nearest."""
        if kind == "hca" or "indexer" not in self.attention:
            return context
        picked = self._value("index_top_k", self.attention["indexer"]["top_k"], "tokens")
        return picked * self._ratio(kind) if kind == "csa" else picked

    def attention_width(self, kind: str) -> Quantity:
        """Values that a query multiplies with: the mean of key and value where they differ."""
        if kind != "mla":
            return self.head_dim
        return ((self.head_dim + self._part("v_head_dim")) / 2).named("mean_head_dim")

    def _index_flop(self, context: Quantity) -> Quantity:
        layers, ratio = self._indexed()
        heads, dim = (
            self._value(f"index_{key}", self.attention["indexer"][key]) for key in ("heads", "dim")
        )
        return index_flop_per_token(layers, heads, dim, context, ratio)


def model(name: str) -> Model:
    """The model of that id or alias, or of a Hugging Face config.json (a path ending in .json).

    CatalogError names the nearest where there is none.
    """
    if name.endswith(".json"):
        return as_model(row_of(Path(name)))
    return as_model(row(KIND, name))


def models() -> list[Model]:
    """All of them."""
    return [as_model(data) for data in rows(KIND).values()]


def as_model(data: dict[str, Any]) -> Model:
    """A model from its row."""
    return Model(data["id"], data["name"], data, data.get("attention", {}), data.get("moe", {}))
