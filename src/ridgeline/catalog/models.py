"""Models: their architecture as published, and what follows from it in bytes and FLOPs.

Every property is a `Quantity` called `id.field`, so that `--set field=…` reaches it.
"""

from dataclasses import dataclass, field
from typing import Any

from ridgeline.catalog.accelerators import dtype_bytes
from ridgeline.catalog.rows import row, rows
from ridgeline.errors import CatalogError
from ridgeline.physics.size import (
    forward_flop_per_token,
    kv_bytes_per_token,
    latent_bytes_per_token,
    weight_bytes,
)
from ridgeline.quantity import Provenance, Quantity, given

KIND = "models"


@dataclass(frozen=True)
class Model:
    """One row of the catalog. Missing values raise CatalogError when they are asked for."""

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
    def is_moe(self) -> bool:
        """Whether tokens visit only some experts."""
        return bool(self.moe)

    def weights_bytes(self, dtype: str) -> Quantity:
        """All weights in one type."""
        return weight_bytes(self.params, dtype_bytes(dtype))

    def flop_per_token(self) -> Quantity:
        """Forward FLOPs of one token, attention scores apart."""
        return forward_flop_per_token(self.active_params)

    def kv_bytes_per_token(self, dtype: str = "bf16") -> Quantity:
        """Cache that grows by this with each token, over all layers that grow."""
        value = dtype_bytes(dtype)
        if "kv_lora_rank" in self.attention:
            latent = self._part("kv_lora_rank")
            rope = self._part("qk_rope_dim")
            return latent_bytes_per_token(self.growing_layers, latent, rope, value)
        return kv_bytes_per_token(self.growing_layers, self.kv_heads, self.head_dim, value)

    @property
    def growing_layers(self) -> Quantity:
        """Layers whose cache grows with the context: neither sliding nor recurrent ones."""
        mix = self.attention.get("layer_mix")
        if mix is None:
            if self.attention.get("window"):
                return self._value("growing_layers", 0)
            return self.layers
        growing = sum(n for kind, n in mix.items() if kind in ("mha", "gqa", "mla", "full"))
        return self._value("growing_layers", growing)

    def _part(self, key: str) -> Quantity:
        return self._value(key, self.attention[key])

    def _count(self, name: str, key: str, unit: str = "") -> Quantity:
        value = self.data.get(key)
        if value is None:
            raise CatalogError(
                f"{key} of {self.name} is not known",
                where=f"{self.id}.{key}",
                remedy="another model, or your own catalog file with the value",
            )
        return self._value(name, value, unit)

    def _value(self, name: str, value: float, unit: str = "") -> Quantity:
        return given(
            value,
            unit,
            name=f"{self.id}.{name}",
            provenance=Provenance.PUBLISHED,
            source=f"{self.name}: {'; '.join(self.data.get('sources', ()))}",
        )


def model(name: str) -> Model:
    """The model of that id or alias; CatalogError names the nearest where there is none."""
    return _model(row(KIND, name))


def models() -> list[Model]:
    """All of them."""
    return [_model(data) for data in rows(KIND).values()]


def _model(data: dict[str, Any]) -> Model:
    return Model(data["id"], data["name"], data, data.get("attention", {}), data.get("moe", {}))
