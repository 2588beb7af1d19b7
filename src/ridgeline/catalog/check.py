"""Checks the catalog against itself: recounts parameters, and finds numbers that contradict.

A model passes where the count is within 2 % of what its publisher says, or within the rounding of
a figure that was published rounded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.counting import count
from ridgeline.catalog.models import model
from ridgeline.catalog.rows import rows, sources

#: How far a count may be from what is published.
TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class Recount:
    """One model: its parameters as published and as counted from its architecture."""

    id: str
    published: int | None
    counted: int
    basis: str
    ok: bool

    @property
    def difference(self) -> float | None:
        """As a share of what is published."""
        return self.counted / self.published - 1 if self.published else None

    @property
    def exact(self) -> bool:
        """To the last parameter."""
        return self.counted == self.published


@dataclass(frozen=True, slots=True)
class Finding:
    """Two numbers of the catalog that cannot both be right."""

    where: str
    problem: str


def recounts() -> list[Recount]:
    """Every model that can be counted from its architecture."""
    return [_recount(row) for row in rows("models").values() if not _uncountable(row)]


def findings() -> list[Finding]:
    """Everything else that is wrong; empty where the catalog agrees with itself."""
    found = [
        Finding(row["id"], f"cannot be counted without {missing}")
        for row in rows("models").values()
        if (missing := _uncountable(row))
    ]
    for row in rows("models").values():
        if not _uncountable(row):
            found += _model(row)
    for row in rows("accelerators").values():
        found += _accelerator(row)
    for row in rows("network").values():
        found += _network(row)
    return found


def _uncountable(row: Mapping[str, Any]) -> str:
    """The field without which it cannot be counted; empty where it can."""
    try:
        count(row)
    except KeyError as error:
        return str(error.args[0])
    return ""


def _recount(row: Mapping[str, Any]) -> Recount:
    published = row.get("published", {})
    said, counted = published.get("total"), count(row).total
    allowed = max(TOLERANCE * (said or 0), published.get("rounding", 0))
    ok = said is None or abs(counted - said) <= allowed
    return Recount(row["id"], said, counted, published.get("basis", "not published"), ok)


def _model(row: Mapping[str, Any]) -> Iterator[Finding]:
    counted, where = count(row), row["id"]
    for field, value in (("params_total", counted.total), ("params_active", counted.active)):
        if row.get(field) not in (None, value):
            yield Finding(f"{where}.{field}", f"{row[field]:,}, but the architecture has {value:,}")
    if sum(model(where).layer_mix.values()) != row["layers"]:
        yield Finding(f"{where}.attention.layer_mix", f"does not add up to {row['layers']} layers")
    cache, made = row.get("kv_cache", {}), model(where)
    for field, value in (
        ("bytes_per_token_bf16", made.kv_bytes_per_token("bf16").value),
        ("fixed_bytes_per_sequence", made.fixed_bytes_per_sequence("bf16").value),
    ):
        if cache.get(field) not in (None, value):
            told = f"{cache[field]:,} B, but the architecture gives {value:,.0f}"
            yield Finding(f"{where}.kv_cache.{field}", told)


def _accelerator(row: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _origins("accelerators", row)
    yield from _doubts(row)
    yield from _links(row)
    yield from _rates(row)
    memory, where = row["memory"], row["id"]
    if memory.get("driver_reported_bytes", 0) > memory["bytes"]:
        yield Finding(f"{where}.memory", "the driver reports more than is sold")
    most = row.get("mig_max_instances")
    if most is not None and most not in (4, 7, 8):
        told = f"{most}, where NVIDIA's parts have 4 or 7 and AMD's 8"
        yield Finding(f"{where}.mig_max_instances", told)


def _links(row: Mapping[str, Any]) -> Iterator[Finding]:
    """One direction and both are told apart, and a device's links add up."""
    link, where = row.get("interconnect", {}), f"{row['id']}.interconnect"
    one, both = link.get("per_direction_bytes_per_s"), link.get("bidirectional_bytes_per_s")
    if one and both and both != 2 * one:
        yield Finding(where, f"{both:g} B/s in both directions is not twice {one:g} B/s in one")
    each, links = link.get("per_link_per_direction_bytes_per_s"), link.get("links")
    if one and each and links and each * links != one:
        yield Finding(where, f"{links:g} links of {each:g} B/s are not {one:g} B/s")
    pair = link.get("p2p_per_direction_bytes_per_s")
    if one and pair and pair > one:
        yield Finding(where, "a pair gets more than all links together")


#: Dense rates that a wider type cannot exceed: each halving of the bits at least keeps the rate.
_NARROWER = (("bf16", "fp8"), ("fp8", "fp4"), ("tf32", "bf16"))
#: FLOP/B of devices with HBM or GDDR: less or more says that a unit or a sparse figure slipped in.
_RIDGE = (30.0, 1000.0)


def _rates(row: Mapping[str, Any]) -> Iterator[Finding]:
    rates, where = row["flops_dense"], row["id"]
    for wide, narrow in _NARROWER:
        if rates.get(wide) and rates.get(narrow) and rates[narrow] < rates[wide]:
            yield Finding(f"{where}.flops_dense", f"{narrow} is slower than {wide}")
    measured = row.get("measured", {})
    for dtype in ("bf16", "fp8"):
        best, peak = measured.get(f"matmul_{dtype}_flops"), rates.get(dtype)
        if best and peak and best > peak:
            yield Finding(f"{where}.measured", f"a {dtype} product faster than the peak")
    is_sram = row.get("on_chip_sram_bytes") == row["memory"]["bytes"]
    rate = rates.get("bf16") or rates.get("fp16")
    ridge = rate / row["memory_bandwidth_bytes_per_s"] if rate else 0
    if rate and not is_sram and not _RIDGE[0] <= ridge <= _RIDGE[1]:
        told = f"a ridge of {ridge:.0f} FLOP/B is outside {_RIDGE[0]:.0f} to {_RIDGE[1]:.0f}"
        yield Finding(f"{where}.flops_dense", told)


def _network(row: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _origins("network", row)
    yield from _doubts(row)
    if row.get("w") and row.get("max_w") and row["w"] > row["max_w"]:
        yield Finding(f"{row['id']}.w", "more than its maximum")
    whole = row.get("ports", 1) * row["bits_per_s_per_port"]
    for split in row.get("splits_to", ()):
        if split["ports"] * split["bits_per_s_per_port"] > whole:
            yield Finding(f"{row['id']}.splits_to", "split ports carry more than the whole")


def _origins(kind: str, row: Mapping[str, Any]) -> Iterator[Finding]:
    groups, known = row.get("src", {}), sources(kind)
    keys = {groups} if isinstance(groups, str) else set(groups.values())
    keys |= {one["src"] for one in row.get("prices_usd_per_accelerator_hour", ()) if "src" in one}
    for key in sorted(keys - known.keys()):
        yield Finding(f"{row['id']}.src", f'"{key}" is none of the sources of its file')


def _doubts(row: Mapping[str, Any]) -> Iterator[Finding]:
    for doubt in row.get("doubts", ()):
        value: Any = row
        for part in doubt["field"].split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        where = f"{row['id']}.{doubt['field']}"
        if value is None:
            yield Finding(where, "is in doubt, but has no value")
        elif not doubt["low"] <= value <= doubt["high"]:
            yield Finding(where, f"{value:g} is outside its own doubt")
