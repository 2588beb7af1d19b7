"""Accelerators: what one device can compute, hold and move, each number with its source.

Every property is a `Quantity` called `id.field`, so that `--set field=…` reaches it.
"""

from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.rows import row, rows, sources
from ridgeline.errors import CatalogError
from ridgeline.quantity import Provenance, Quantity, given

KIND = "accelerators"

#: Data types by the bits of one value; scaled formats carry their scales.
DTYPE_BITS = {
    "fp32": 32.0, "tf32": 32.0, "bf16": 16.0, "fp16": 16.0, "fp8": 8.0, "int8": 8.0,
    "fp6": 6.0, "fp4": 4.0, "int4": 4.0, "nvfp4": 4.5, "mxfp4": 4.25,
}  # fmt: skip
_RUNS_AS = {"nvfp4": "fp4", "mxfp4": "fp4", "int4": "bf16"}


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
        note = "as the driver reports it" if reported else "capacity sold"
        return self._value("memory_bytes", reported or memory["bytes"], "B", "memory", note)

    @property
    def memory_bytes_per_s(self) -> Quantity:
        """Bandwidth of the device's own memory."""
        value = self._need("memory_bandwidth_bytes_per_s")
        return self._value("memory_bytes_per_s", value, "B/s", "bandwidth")

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
        return self._value(f"{runs_as}_flop_per_s", rates[runs_as], "FLOP/s", "flops", "dense")

    @property
    def link_bytes_per_s(self) -> Quantity:
        """What one device can send to its domain (NVLink, ICI, ...), one direction."""
        value = self._need("interconnect")["per_direction_bytes_per_s"]
        return self._value("link_bytes_per_s", value, "B/s", "interconnect", "per direction")

    @property
    def domain(self) -> Quantity:
        """Devices reachable at link speed."""
        size = self._need("interconnect")["domain_size"]
        return self._value("domain", size, "GPUs", "interconnect")

    @property
    def nic_bytes_per_s(self) -> Quantity:
        """Scale-out network for each device in the usual server, one direction."""
        bits = self._need("scale_out")["bits_per_s_per_accelerator"]
        return self._value("nic_bytes_per_s", bits / 8, "B/s", "interconnect", "per direction")

    @property
    def host_bytes_per_s(self) -> Quantity:
        """Link to the host, one direction."""
        value = self._need("host_link")["per_direction_bytes_per_s"]
        return self._value("host_bytes_per_s", value, "B/s", "interconnect", "per direction")

    @property
    def tdp_w(self) -> Quantity:
        """Board power."""
        return self._value("tdp_w", self._need("tdp_w"), "W", "tdp")

    @property
    def l2_bytes(self) -> Quantity:
        """Last-level cache on the device."""
        return self._value("l2_bytes", self._need("l2_bytes"), "B", "l2")

    @property
    def sram_bytes(self) -> Quantity:
        """Software-managed memory on the chip."""
        return self._value("sram_bytes", self._need("on_chip_sram_bytes"), "B", "l2")

    @property
    def per_node(self) -> Quantity:
        """Devices in the usual server."""
        return self._value("per_node", self._need("accelerators_per_node"), "GPUs", "memory")

    @property
    def price_usd_per_s(self) -> Quantity:
        """The median of the listed on-demand prices of one device; the interval is their range."""
        listed = [
            (one["usd_per_hour"], one["src"])
            for one in self.data.get("prices_usd_per_accelerator_hour", ())
            if one["kind"].startswith("on_demand") and isinstance(one["usd_per_hour"], int | float)
        ]
        if not listed:
            raise CatalogError(
                f"no on-demand price is known for {self.name}",
                where="price",
                remedy="--set price_usd_per_s=2.50USD/h",
            )
        prices = sorted(price for price, _ in listed)
        middle = len(prices) // 2
        median = prices[middle] if len(prices) % 2 else (prices[middle - 1] + prices[middle]) / 2
        told = sources(KIND)
        return given(
            median,
            "USD/h",
            name=f"{self.id}.price_usd_per_s",
            provenance=Provenance.PUBLISHED,
            source="; ".join(dict.fromkeys(told.get(key, key) for _, key in listed)),
            note=f"median of {len(prices)} on-demand prices a device",
            interval=(prices[0], prices[-1]),
        )

    def _need(self, field: str) -> Any:
        value = self.data.get(field)
        if value is None:
            raise CatalogError(
                f"{field} of {self.name} is not known",
                where=f"{self.id}.{field}",
                remedy="another accelerator, or your own catalog file with the value",
            )
        return value

    def _value(self, field: str, value: float, unit: str, key: str, note: str = "") -> Quantity:
        groups = self.data.get("src", {})
        group = groups if isinstance(groups, str) else groups.get(key, groups.get("memory", ""))
        return given(
            value,
            unit,
            name=f"{self.id}.{field}",
            provenance=Provenance.DATASHEET,
            source=f"{self.name}: {sources(KIND).get(group, group)}",
            note=note,
        )


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
