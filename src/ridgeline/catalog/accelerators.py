"""Accelerators: what one device can compute, hold and move, each number with its source.

Every property is a `Quantity` called `id.field`, so that `--set field=…` reaches it.
"""

import math
from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.rows import dated, origin_of, row, rows, sources
from ridgeline.errors import CatalogError
from ridgeline.quantity import Provenance, Quantity, choose, given
from ridgeline.show import show

KIND = "accelerators"

#: Data types by the bits of one value; scaled formats carry their scales.
DTYPE_BITS = {
    "fp32": 32.0, "tf32": 32.0, "bf16": 16.0, "fp16": 16.0, "fp8": 8.0, "int8": 8.0,
    "fp6": 6.0, "fp4": 4.0, "int4": 4.0, "nvfp4": 4.5, "mxfp4": 4.25, "int4-g32": 4.5,
}  # fmt: skip
_RUNS_AS = {"nvfp4": "fp4", "mxfp4": "fp4", "int4": "bf16", "int4-g32": "bf16"}


@dataclass(frozen=True)
class Accelerator:
    """One row of the catalog. Missing values raise CatalogError when they are asked for."""

    id: str
    name: str
    data: dict[str, Any]

    @property
    def memory_bytes(self) -> Quantity:
        """What the driver reports, or where that is not known the capacity sold."""
        memory = self._need("memory")
        reported = memory.get("driver_reported_bytes")
        sold_is_newer = origin_of(self.data, "memory.bytes") and not origin_of(
            self.data, "memory.driver_reported_bytes"
        )
        if not reported or sold_is_newer:
            return self._value(
                "memory_bytes", memory["bytes"], "B", "memory.bytes", "memory", "capacity sold"
            )
        return self._value(
            "memory_bytes",
            reported,
            "B",
            "memory.driver_reported_bytes",
            "reported",
            "as the driver reports it",
        )

    @property
    def sold_bytes(self) -> Quantity:
        """The capacity on the label, which for most cards is binary: 80 "GB" are 80 GiB."""
        value = self._need("memory")["bytes"]
        return self._value("sold_bytes", value, "B", "memory.bytes", "memory", "capacity sold")

    @property
    def memory_bytes_per_s(self) -> Quantity:
        """Bandwidth of the device's own memory."""
        path = "memory_bandwidth_bytes_per_s"
        return self._value("memory_bytes_per_s", self._need(path), "B/s", path, "bandwidth")

    def multiplies(self, dtype: str) -> bool:
        """Whether the device has a rate for products in this type."""
        return _RUNS_AS.get(dtype, dtype) in self._need("flops_dense")

    def flop_per_s(self, dtype: str = "bf16") -> Quantity:
        """Dense matrix rate for a data type; CatalogError where the device has no units for it.

        `nvfp4` and `mxfp4` run at the rate of fp4; int4 weights are widened, so at that of bf16.
        """
        runs_as = _RUNS_AS.get(dtype, dtype)
        rates = self._need("flops_dense")
        if runs_as not in rates:
            have = ", ".join(rates)
            unsupported = runs_as in self.data.get("unsupported_dtypes", ())
            told = "has no units for" if unsupported else "has no published rate for"
            raise CatalogError(f"{self.name} {told} {dtype}", where="dtype", remedy=have)
        path, name = f"flops_dense.{runs_as}", f"{runs_as}_flop_per_s"
        groups = self.data.get("src", {})
        key = runs_as if runs_as in groups else "flops"
        return self._value(name, rates[runs_as], "FLOP/s", path, key, "dense")

    @property
    def link_bytes_per_s(self) -> Quantity:
        """What one device can send to its domain (NVLink, ICI, ...), one direction."""
        path = "interconnect.per_direction_bytes_per_s"
        return self._value(
            "link_bytes_per_s", self._need(path), "B/s", path, "interconnect", "per direction"
        )

    @property
    def domain(self) -> Quantity:
        """Devices reachable at link speed."""
        path = "interconnect.domain_size"
        return self._value("domain", self._need(path), "GPUs", path, "interconnect")

    @property
    def nic_bytes_per_s(self) -> Quantity:
        """Scale-out network for each device in the usual server, one direction."""
        path = "scale_out.bits_per_s_per_accelerator"
        rate = self._need(path) / 8
        return self._value("nic_bytes_per_s", rate, "B/s", path, "scale_out", "per direction")

    @property
    def host_bytes_per_s(self) -> Quantity:
        """Link to the host, one direction."""
        path = "host_link.per_direction_bytes_per_s"
        return self._value(
            "host_bytes_per_s", self._need(path), "B/s", path, "host_link", "per direction"
        )

    @property
    def tdp_w(self) -> Quantity:
        """Board power."""
        return self._value("tdp_w", self._need("tdp_w"), "W", "tdp_w", "tdp")

    @property
    def l2_bytes(self) -> Quantity:
        """Last-level cache on the device."""
        return self._value("l2_bytes", self._need("l2_bytes"), "B", "l2_bytes", "l2")

    @property
    def sram_bytes(self) -> Quantity:
        """Software-managed memory on the chip."""
        path = "on_chip_sram_bytes"
        return self._value("sram_bytes", self._need(path), "B", path, "sram")

    @property
    def per_node(self) -> Quantity:
        """Devices in the usual server."""
        path = "accelerators_per_node"
        return self._value("per_node", self._need(path), "GPUs", path, "memory")

    @property
    def price_usd_per_s(self) -> Quantity:
        """The median of the listed on-demand prices of one device; the interval is their range."""
        listed = [
            one
            for one in self.data.get("prices_usd_per_accelerator_hour") or ()
            if one["kind"].startswith("on_demand") and isinstance(one["usd_per_hour"], int | float)
        ]
        if not listed:
            return self._price_to_be_set()
        prices = sorted(one["usd_per_hour"] for one in listed)
        middle = len(prices) // 2
        median = prices[middle] if len(prices) % 2 else (prices[middle - 1] + prices[middle]) / 2
        dates = sorted({str(one.get("as_of", self.data["read_on"])) for one in listed})
        when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
        return given(
            median,
            "USD/h",
            name=f"{self.id}.price_usd_per_s",
            provenance=Provenance.PUBLISHED,
            source="; ".join(dict.fromkeys(self._seller(one) for one in listed)),
            note=f"median of {len(prices)} on-demand prices of {when}",
            interval=(prices[0], prices[-1]),
        )

    def price_or(self, told: Quantity, name: str = "device_price") -> Quantity:
        """The price that was told, or the catalog's where that is 0, as topics have it."""
        if self._is_told(told):
            try:
                listed = self.price_usd_per_s
            except CatalogError:
                return told.named(name, "USD/h")
        else:
            listed = self.price_usd_per_s
        taken = choose(told <= 0, listed, told, why="price is 0")
        return taken.named(name, "USD/h")

    def price_note(self, told: Quantity, option: str = "--price") -> str:
        """Which price `price_or` took, in words."""
        if self._is_told(told):
            return f"The price is the one that {option} gives."
        listed = self.price_usd_per_s
        low, high = listed.interval or (listed.value, listed.value)
        spread = " to ".join(show(listed.but(value=end, interval=None)) for end in (low, high))
        told_of = f", the {listed.note} ({spread})" if low < high else ", the only one listed"
        origin = told_of if listed.interval else ", as set"
        return f"{self.name} costs {show(listed)}{origin}; {option} takes another."

    @staticmethod
    def _is_told(price: Quantity) -> bool:
        """Whether a price was told, in a sweep at every point."""
        return bool((price > 0).all() if hasattr(price.value, "all") else price > 0)

    def _price_to_be_set(self) -> Quantity:
        """What `--set` says, where no price is listed; CatalogError where it says nothing."""
        told = given(math.nan, "USD/h", name=f"{self.id}.price_usd_per_s")
        if math.isnan(told.value):
            raise CatalogError(
                f"no on-demand price is known for {self.name}",
                where="price",
                remedy="--set price_usd_per_s=2.50USD/h",
            )
        return told.but(note="no on-demand price is known")

    def _seller(self, price: dict[str, Any]) -> str:
        mine = origin_of(self.data, "prices_usd_per_accelerator_hour")
        key = price.get("src", "")
        return sources(KIND).get(key, key) or mine or self.data.get("source", "")

    def _need(self, path: str) -> Any:
        value: Any = self.data
        for part in path.split("."):
            value = value.get(part) if value is not None else None
        if value is None:
            raise CatalogError(
                f"{path} of {self.name} is not known",
                where=f"{self.id}.{path}",
                remedy="another accelerator, or your own catalog file with the value",
            )
        return value

    def _value(
        self, field: str, value: float, unit: str, path: str, key: str, note: str = ""
    ) -> Quantity:
        """A value of the row; what sources disagree on is its interval."""
        doubt = next((one for one in self.data.get("doubts", ()) if one["field"] == path), None)
        announced = "announced, not measured" if self.data.get("status") == "announced" else ""
        provenance, source = self._origin(path, key)
        return given(
            value,
            unit,
            name=f"{self.id}.{field}",
            provenance=provenance,
            source=source,
            note="; ".join(part for part in (note, announced, doubt and doubt["why"]) if part),
            interval=(doubt["low"], doubt["high"]) if doubt else None,
        )

    def _origin(self, path: str, key: str) -> tuple[Provenance, str]:
        if mine := origin_of(self.data, path):
            return Provenance.GIVEN, f"{self.name}: {mine}"
        groups = self.data.get("src", {})
        group = groups if isinstance(groups, str) else groups.get(key, groups.get("memory", ""))
        written = sources(KIND).get(group, group) or self.data.get("source", "")
        recalled = group == "mem"
        told = f"{self.name}: {dated(written, self.data)}"
        return Provenance.ASSUMED if recalled else Provenance.DATASHEET, told


def accelerator(name: str) -> Accelerator:
    """The accelerator of that id or alias; CatalogError names the nearest where there is none."""
    data = row(KIND, name)
    return Accelerator(data["id"], data["name"], data)


def accelerators() -> list[Accelerator]:
    """All of them."""
    return [Accelerator(data["id"], data["name"], data) for data in rows(KIND).values()]


def dtype_bytes(dtype: str) -> Quantity:
    """Bytes of one value, its share of the scales included."""
    if dtype not in DTYPE_BITS:
        raise CatalogError(
            f'"{dtype}" is no data type', where="dtype", remedy=", ".join(DTYPE_BITS)
        )
    return given(
        DTYPE_BITS[dtype] / 8,
        "B",
        name=f"{dtype}_bytes",
        provenance=Provenance.DEFINED,
        source=f"{DTYPE_BITS[dtype]:g} bits a value",
    )
