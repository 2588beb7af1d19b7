"""Everything the catalog knows of one thing, and what follows from it: the lines of `show`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.accelerators import Accelerator, accelerator
from ridgeline.catalog.models import Model, as_model, model
from ridgeline.catalog.network import Part, part
from ridgeline.catalog.rows import ORIGINS, rows
from ridgeline.catalog.rows import row as found_row
from ridgeline.errors import CatalogError
from ridgeline.physics.roofline import read_s, ridge_flop_per_byte
from ridgeline.quantity import Quantity

#: What can be looked up, in the order in which a name is searched.
KINDS = ("models", "accelerators", "network", "xids")


@dataclass(frozen=True, slots=True)
class Sheet:
    """One row: its `values` with their sources, what is `derived`, and the other fields as text."""

    kind: str
    id: str
    title: str
    values: dict[str, Quantity]
    derived: dict[str, Quantity]
    text: dict[str, str]
    notes: tuple[str, ...]
    row: dict[str, Any]


def sheet(name: str) -> Sheet:
    """The sheet of a model, an accelerator, a part of a network or a fault code."""
    if name.endswith(".json"):
        return _model(model(name).data)
    nearest = []
    for kind in KINDS:
        wanted = name.lower().removeprefix("xid").strip() if kind == "xids" else name
        try:
            data = found_row(kind, wanted)
        except CatalogError as error:
            if "is not in the catalog of" not in error.problem:
                raise
            if "(nearest)" in error.remedy and (kind != "xids" or wanted.isdigit()):
                nearest.append(error.remedy.partition(" (")[0])
            continue
        return _SHEETS[kind](data)
    remedy = f"{', '.join(nearest)} (nearest)" if nearest else "`ridgeline catalog list`"
    raise CatalogError(f'"{name}" is not in the catalog', where="name", remedy=remedy)


def _model(data: Mapping[str, Any]) -> Sheet:
    one = as_model(dict(data))
    values = _known(one, _MODEL_VALUES)
    derived = dict(_of_model(one, data))
    return _sheet("models", data, values, derived)


_MODEL_VALUES = (
    "params", "active_params", "layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate",
    "vocab", "context_tokens", "window_tokens", "experts", "top_k", "shared_experts", "moe_layers",
    "expert_intermediate",
)  # fmt: skip


def _of_model(one: Model, data: Mapping[str, Any]) -> Iterator[tuple[str, Quantity]]:
    for dtype in ("native", "bf16", "fp8", "int4"):
        yield f"weights, {dtype}", one.weights_bytes(dtype)
    yield "forward FLOP per token", one.flop_per_token()
    if data.get("type", "decoder") != "decoder":
        return
    for dtype in ("bf16", "fp8"):
        yield f"cache per token, {dtype}", one.kv_bytes_per_token(dtype)
    if "indexer" in one.attention:
        yield "index keys per token, fp8", one.index_bytes_per_token()
    if (fixed := one.fixed_bytes_per_sequence()).value:
        yield "windows and states per sequence, bf16", fixed
    if data.get("context"):
        yield "cache of a full context, bf16", one.cache_bytes(one.context_tokens)
    if one.is_moe:
        yield "one routed expert, one layer", one.expert_params
        yield "shared by every token", one.dense_params


def _accelerator(data: Mapping[str, Any]) -> Sheet:
    one = accelerator(data["id"])
    values = _known(one, _ACCELERATOR_VALUES)
    values |= {f"{dtype}, dense": one.flop_per_s(dtype) for dtype in data["flops_dense"]}
    derived = dict(_of_accelerator(one, data))
    return _sheet("accelerators", data, values, derived)


_ACCELERATOR_VALUES = (
    "sold_bytes", "memory_bytes", "memory_bytes_per_s", "link_bytes_per_s", "domain",
    "nic_bytes_per_s", "host_bytes_per_s", "tdp_w", "l2_bytes", "sram_bytes", "per_node",
    "price_usd_per_s",
)  # fmt: skip


def _of_accelerator(one: Accelerator, data: Mapping[str, Any]) -> Iterator[tuple[str, Quantity]]:
    for dtype in ("bf16", "fp16", "fp8", "fp4"):
        if data["flops_dense"].get(dtype):
            ridge = ridge_flop_per_byte(one.flop_per_s(dtype), one.memory_bytes_per_s)
            yield f"ridge, {dtype}", ridge
    yield "its memory read once", read_s(one.memory_bytes, one.memory_bytes_per_s)


def _network(data: Mapping[str, Any]) -> Sheet:
    values = _known(part(data["id"]), _PART_VALUES)
    return _sheet("network", data, values, dict(_of_part(part(data["id"]), data)))


_PART_VALUES = ("ports", "bytes_per_s", "w", "max_w", "price_usd", "reach_m")


def _of_part(one: Part, data: Mapping[str, Any]) -> Iterator[tuple[str, Quantity]]:
    for split in data.get("splits_to", ()):
        rate = split["bits_per_s_per_port"]
        yield f"ports of {rate / 1e9:g} Gb/s", one.radix(rate)


def _xid(data: Mapping[str, Any]) -> Sheet:
    return _sheet("xids", data, {}, {})


_SHEETS: Mapping[str, Callable[[Mapping[str, Any]], Sheet]] = {
    "models": _model, "accelerators": _accelerator, "network": _network, "xids": _xid,
}  # fmt: skip


def _known(one: Any, names: tuple[str, ...]) -> dict[str, Quantity]:
    """Those of its properties that have a value."""
    found = {}
    for name in names:
        try:
            found[name] = getattr(one, name)
        except CatalogError:
            continue
    return found


def _sheet(
    kind: str, data: Mapping[str, Any], values: dict[str, Quantity], derived: dict[str, Quantity]
) -> Sheet:
    notes = [data["notes"]] if data.get("notes") else []
    notes += [f"{one['field']}: {one['why']}" for one in data.get("doubts", ())]
    title = f"Xid {data['code']}: {data.get('name', '')}" if kind == "xids" else data["name"]
    text = {key: _flat(value) for key, value in data.items() if key not in _ELSEWHERE}
    row = {key: value for key, value in data.items() if key != ORIGINS}
    return Sheet(kind, data["id"], title, values, derived, text, tuple(notes), row)


#: Fields that are values, notes or the title, and so are not said again.
_ELSEWHERE = {
    "id", "name", "notes", "doubts", "memory", "memory_bandwidth_bytes_per_s", "flops_dense",
    "params_total", "params_active", "layers", "hidden", "heads", "kv_heads", "head_dim",
    "intermediate", "vocab", "context", "ports", "bits_per_s_per_port", "splits_to", "w", "max_w",
    "price_usd", "reach_m", "tdp_w", "l2_bytes", "on_chip_sram_bytes", "accelerators_per_node",
    "prices_usd_per_accelerator_hour", "src", "code", ORIGINS,
}  # fmt: skip


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_flat(one)}" for key, one in value.items() if one is not None)
    if isinstance(value, list | tuple):
        return "; ".join(_flat(one) for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) and abs(value) > 9999 else str(value)


def overview() -> dict[str, int]:
    """How many rows there are of each kind."""
    return {kind: len(rows(kind)) for kind in KINDS}
