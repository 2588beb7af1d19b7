"""A model's architecture as published: layers by kind of attention, heads, experts, vocabulary.

Every property is a `Quantity` called `id.field`, so that `--set field=…` reaches it. What is set
moves what hangs on it: a model of other `params` has the same shape in another size, other experts
change `params` and `active_params`. What follows in bytes and FLOPs is in `models`.
"""

from dataclasses import dataclass, field
from typing import Any

from ridgeline.catalog.rows import dated, origin_of
from ridgeline.errors import CatalogError
from ridgeline.physics.size import gated_expert_params
from ridgeline.quantity import Provenance, Quantity, given, holds
from ridgeline.show import show

#: Kinds of attention whose cache grows with each token and holds a key and a value a KV head.
FULL = ("mha", "gqa", "mqa", "full")
#: Kinds that look back at most a window or a chunk, so that their cache is capped.
CAPPED = ("sliding", "chunked")
#: Kinds that keep a state of fixed size instead of a cache.
LINEAR = ("gated_deltanet", "kda")
#: Kinds whose cache is pooled, by the name that the layer mix gives them.
COMPRESSED = ("csa", "hca")
KINDS = (*FULL, "mla", *CAPPED, *LINEAR, *COMPRESSED, "bidirectional")

_WIDTH = "expert_intermediate"
#: What sizes the experts of a model: fields of `moe`, and their properties.
_EXPERTS = {"experts": "experts", "top_k": "top_k", "layers": "moe_layers", _WIDTH: _WIDTH}


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
        """All parameters; with other experts than published, that many more or fewer."""
        published = self._count("params", "params_total", "params")
        if self._are_experts_as_published("experts", "layers"):
            return published
        return self._with_experts_set("params_total").named(f"{self.id}.params", "params")

    @property
    def active_params(self) -> Quantity:
        """Parameters that one token multiplies with: the same share of `params` as published."""
        active = self._count("active_params", "params_active", "params")
        scale = self._scale
        if scale is not None or not self._are_experts_as_published("top_k", "layers"):
            sized = self._with_experts_set("params_active")
            sized = sized if scale is None else sized * scale
            active = sized.named(f"{self.id}.active_params", "params")
        if self.is_moe and self._is_sized and not holds(active <= self.params):
            told = f"uses {show(active)} a token, which is more than all of its {show(self.params)}"
            raise self._lacks("active_params", told, "set params, or fewer top_k, as well")
        return active

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
        params, scale = self._expert_as_shaped(), self._scale
        return (params if scale is None else params * scale).named("expert_params", "params")

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
        dense = self.params - self.routed_params
        if not holds(dense.value >= 0):
            told = f"has {show(self.routed_params)} in experts, more than its {show(self.params)}"
            raise self._lacks("params", told, "set fewer experts, or params, as well")
        return dense.named("dense_params", "params")

    @property
    def embedding_params(self) -> Quantity:
        """The table of token vectors, and the output head where it is not the same table."""
        tables = self._value("embedding_tables", 1 if self.data.get("tied_embeddings") else 2)
        return (tables * self.vocab * self.hidden).named("embedding_params", "params")

    # What sizes become where one of them was set.

    @property
    def _is_sized(self) -> bool:
        return self.data.get("params_total") is not None

    @property
    def _scale(self) -> Quantity | None:
        """How many times its published size the model is; None where `params` were not set."""
        if not self._is_sized:
            return None
        params = self.params
        if holds(params.value == self.data["params_total"]) and self._are_experts_as_published(
            "experts", "layers"
        ):
            return None  # the usual case, told without a derivation
        shaped = self._with_experts_set("params_total")
        return None if holds(params.value == shaped.value) else params / shaped

    def _with_experts_set(self, key: str) -> Quantity:
        """A published size, more or less what experts that were set add to it."""
        name = "published_params" if key == "params_total" else "published_active_params"
        published = self._value(name, self.data[key], "params", key)
        many = ("experts" if key == "params_total" else "top_k", "layers")
        if self._are_experts_as_published(*many):
            return published
        count, layers = (self._expert(_EXPERTS[one], one) for one in many)
        before = self._value("published_expert_params", self._published_expert(*many), "params")
        return published + (count * layers * self._expert_as_shaped() - before)

    def _are_experts_as_published(self, *many: str) -> bool:
        """Whether experts are as many, in as many layers and as wide as the row says."""
        if not self.is_moe or not self._is_sized:
            return True
        now = [self._expert(_EXPERTS[one], one) for one in (*many, "expert_intermediate")]
        same = (one.value == self.moe[key] for one, key in zip(now, (*many, _WIDTH), strict=True))
        return all(holds(one) for one in same) and holds(self._width().value == self._bare_width)

    def _published_expert(self, *many: str) -> float:
        count, layers = (self.moe[one] for one in many)
        return float(count * layers * gated_expert_params(self._bare_width, self.moe[_WIDTH]))

    def _expert_as_shaped(self) -> Quantity:
        one: Quantity = gated_expert_params(self._width(), self.expert_intermediate)
        return one

    def _width(self) -> Quantity:
        if "latent_hidden" in self.moe:
            return self._value("latent_hidden", self.moe["latent_hidden"])
        return self.hidden

    @property
    def _bare_width(self) -> float:
        return float(self.moe.get("latent_hidden", self.data["hidden"]))

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
