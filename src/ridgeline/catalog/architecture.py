"""A model's architecture as published: layers by kind of attention, heads, experts, vocabulary.

Every property is a `Quantity` called `id.field`, so that `--set field=…` reaches it. What follows
from these numbers in bytes and FLOPs is in `models`.
"""

from dataclasses import dataclass, field
from typing import Any

from ridgeline.catalog.rows import dated, origin_of
from ridgeline.errors import CatalogError
from ridgeline.physics.size import gated_expert_params
from ridgeline.quantity import Provenance, Quantity, given

#: Kinds of attention whose cache grows with each token and holds a key and a value a KV head.
FULL = ("mha", "gqa", "mqa", "full")
#: Kinds that look back at most a window or a chunk, so that their cache is capped.
CAPPED = ("sliding", "chunked")
#: Kinds that keep a state of fixed size instead of a cache.
LINEAR = ("gated_deltanet", "kda")
#: Kinds whose cache is pooled, by the name that the layer mix gives them.
COMPRESSED = ("csa", "hca")
KINDS = (*FULL, "mla", *CAPPED, *LINEAR, *COMPRESSED, "bidirectional")


@dataclass(frozen=True)
class Architecture:
    """The numbers of one row. Missing values raise CatalogError when they are asked for."""

    id: str
    name: str
    data: dict[str, Any]
    attention: dict[str, Any] = field(default_factory=dict)
    moe: dict[str, Any] = field(default_factory=dict)

    @property
    def params(self) -> Quantity:
        """All parameters."""
        return self._count("params", "params_total", "params")

    @property
    def active_params(self) -> Quantity:
        """Parameters that one token multiplies with."""
        return self._count("active_params", "params_active", "params")

    @property
    def layers(self) -> Quantity:
        """Transformer layers."""
        return self._count("layers", "layers")

    @property
    def hidden(self) -> Quantity:
        """Width of the residual stream."""
        return self._count("hidden", "hidden")

    @property
    def heads(self) -> Quantity:
        """Query heads."""
        return self._count("heads", "heads")

    @property
    def kv_heads(self) -> Quantity:
        """Heads that have keys and values of their own; for latent attention they size no cache."""
        return self._count("kv_heads", "kv_heads")

    @property
    def head_dim(self) -> Quantity:
        """Width of one head; not always hidden / heads."""
        return self._count("head_dim", "head_dim")

    @property
    def intermediate(self) -> Quantity:
        """Width of the feed-forward block."""
        return self._count("intermediate", "intermediate")

    @property
    def vocab(self) -> Quantity:
        """Tokens in the vocabulary."""
        return self._count("vocab", "vocab")

    @property
    def context_tokens(self) -> Quantity:
        """The longest context."""
        return self._count("context_tokens", "context", "tokens")

    @property
    def window_tokens(self) -> Quantity:
        """The window (or chunk) of layers that have one; CatalogError where none has."""
        if not self.attention.get("window"):
            raise self._lacks("window", "has no layers with a window")
        return self._value("window_tokens", self.attention["window"], "tokens")

    # Layers by kind of attention.

    @property
    def layer_mix(self) -> dict[str, int]:
        """How many layers there are of each of `KINDS`."""
        kind, layers = self.attention.get("kind", "gqa"), self.data["layers"]
        if self.data.get("type", "decoder") != "decoder":
            return {"bidirectional": layers}
        if kind == "csa_hca":
            named = {"0": "sliding", "4": "csa", "128": "hca"}
            return {named[ratio]: n for ratio, n in self.attention["compress_layers"].items()}
        return dict(self.attention.get("layer_mix", {kind: layers}))

    @property
    def growing_layers(self) -> Quantity:
        """Layers whose cache grows with the context: neither capped nor recurrent ones."""
        return self.layers_of("growing_layers", *FULL, "mla", *COMPRESSED)

    @property
    def capped_layers(self) -> Quantity:
        """Layers that keep at most a window of tokens."""
        if self.attention.get("kind") == "csa_hca":
            return self.layers
        return self.layers_of("capped_layers", *CAPPED)

    @property
    def linear_layers(self) -> Quantity:
        """Layers that keep a state instead of a cache."""
        return self.layers_of("linear_layers", *LINEAR)

    def layers_of(self, name: str, *kinds: str) -> Quantity:
        """How many layers are of these kinds; `layers` itself where all of them are."""
        mix = self.layer_mix
        if mix and all(kind in kinds for kind in mix):
            return self.layers
        return self._value(name, sum(n for kind, n in mix.items() if kind in kinds))

    # Experts.

    @property
    def is_moe(self) -> bool:
        """Whether tokens visit only some experts."""
        return bool(self.moe)

    @property
    def experts(self) -> Quantity:
        """Routed experts of one layer."""
        return self._expert("experts", "experts")

    @property
    def top_k(self) -> Quantity:
        """Routed experts that one token visits in one layer."""
        return self._expert("top_k", "top_k")

    @property
    def shared_experts(self) -> Quantity:
        """Experts that every token visits."""
        return self._expert("shared_experts", "shared_experts")

    @property
    def expert_intermediate(self) -> Quantity:
        """Width of one routed expert."""
        return self._expert("expert_intermediate", "expert_intermediate")

    @property
    def moe_layers(self) -> Quantity:
        """Layers that have experts."""
        return self._expert("moe_layers", "layers")

    @property
    def expert_params(self) -> Quantity:
        """Weights of one routed expert in one layer, biases apart."""
        width = self.hidden
        if "latent_hidden" in self.moe:
            width = self._value("latent_hidden", self.moe["latent_hidden"])
        params = gated_expert_params(width, self.expert_intermediate)
        return params.named("expert_params", "params")

    @property
    def routed_params(self) -> Quantity:
        """Weights of all routed experts; 0 for a dense model."""
        if not self.is_moe:
            return self._value("routed_params", 0, "params")
        count = self.experts * self.moe_layers * self.expert_params
        return count.named("routed_params", "params")

    @property
    def dense_params(self) -> Quantity:
        """Parameters that every token shares: all but the routed experts."""
        if not self.is_moe:
            return self.params
        return (self.params - self.routed_params).named("dense_params", "params")

    @property
    def embedding_params(self) -> Quantity:
        """The table of token vectors, and the output head where it is not the same table."""
        tables = self._value("embedding_tables", 1 if self.data.get("tied_embeddings") else 2)
        return (tables * self.vocab * self.hidden).named("embedding_params", "params")

    # How a value of the row becomes a quantity.

    def _expert(self, name: str, key: str) -> Quantity:
        if not self.moe:
            raise self._lacks(key, "is dense: it has no experts")
        return self._value(name, self.moe[key], path=f"moe.{key}")

    def _part(self, key: str, name: str = "") -> Quantity:
        return self._value(name or key, self.attention[key], path=f"attention.{key}")

    def _count(self, name: str, key: str, unit: str = "") -> Quantity:
        value = self.data.get(key)
        if value is None:
            raise self._lacks(key, f"has no known {key}")
        return self._value(name, value, unit, key)

    def _lacks(self, key: str, problem: str, remedy: str = "") -> CatalogError:
        return CatalogError(
            f"{self.name} {problem}",
            where=f"{self.id}.{key}",
            remedy=remedy or "another model, or your own catalog file with the value",
        )

    def _value(self, name: str, value: float, unit: str = "", path: str = "") -> Quantity:
        mine = origin_of(self.data, path or name)
        listed = self.data.get("sources") or [self.data.get("source", "")]
        told = mine or dated("; ".join(listed), self.data)
        return given(
            value,
            unit,
            name=f"{self.id}.{name}",
            provenance=Provenance.GIVEN if mine else Provenance.PUBLISHED,
            source=f"{self.name}: {told}",
        )
