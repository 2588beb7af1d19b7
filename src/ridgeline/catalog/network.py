"""Switches, network cards, optics and cables: ports, rates, watts and prices, each with its source.

Every property is a `Quantity` called `id.field`, so that `--set field=…` reaches it. Rates are one
direction. What is not known raises CatalogError when it is asked for.
"""

from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.rows import dated, origin_of, row, rows, sources
from ridgeline.errors import CatalogError
from ridgeline.quantity import Provenance, Quantity, given

KIND = "network"


@dataclass(frozen=True)
class Part:
    """One row of the catalog: a switch, a network card, an optic or a cable."""

    id: str
    name: str
    kind: str
    data: dict[str, Any]

    @property
    def ports(self) -> Quantity:
        """Ports at full rate."""
        return self._value("ports", self._need("ports"), "ports", "ports", "ports")

    def radix(self, bits_per_s: float) -> Quantity:
        """Ports at the rate of an endpoint, split where the part can; CatalogError where not."""
        offered = {self.data["bits_per_s_per_port"]: self._need("ports")}
        offered |= {
            one["bits_per_s_per_port"]: one["ports"] for one in self.data.get("splits_to", ())
        }
        fits = [rate for rate in offered if rate >= bits_per_s * (1 - 1e-9)]
        if not fits:
            fastest = max(offered) / 1e9
            raise CatalogError(
                f"{self.name} has no ports of {bits_per_s / 1e9:g} Gb/s",
                where=f"{self.id}.ports",
                remedy=f"{fastest:g} Gb/s is its fastest",
            )
        rate = min(fits)
        note = f"at {rate / 1e9:g} Gb/s a port"
        return self._value("radix", offered[rate], "ports", "ports", "ports", note)

    @property
    def bytes_per_s(self) -> Quantity:
        """Rate of one port, one direction."""
        rate = self._need("bits_per_s_per_port") / 8
        path = "bits_per_s_per_port"
        return self._value("bytes_per_s", rate, "B/s", path, "rate", "per direction")

    @property
    def w(self) -> Quantity:
        """Typical draw; of a switch or card without its optics."""
        return self._value("w", self._need("w"), "W", "w", "power")

    @property
    def max_w(self) -> Quantity:
        """What a feed has to be sized for."""
        return self._value("max_w", self._need("max_w"), "W", "max_w", "power")

    @property
    def price_usd(self) -> Quantity:
        """Indicative price of one."""
        return self._value("price_usd", self._need("price_usd"), "USD", "price_usd", "price")

    @property
    def reach_m(self) -> Quantity:
        """The longest link."""
        return self._value("reach_m", self._need("reach_m"), "m", "reach_m", "reach")

    def _need(self, field: str) -> Any:
        value = self.data.get(field)
        if value is None:
            raise CatalogError(
                f"{field} of {self.name} is not known",
                where=f"{self.id}.{field}",
                remedy="another part, or your own catalog file with the value",
            )
        return value

    def _value(
        self, field: str, value: float, unit: str, path: str, key: str, note: str = ""
    ) -> Quantity:
        doubt = next((one for one in self.data.get("doubts", ()) if one["field"] == path), None)
        provenance, source = self._origin(path, key)
        return given(
            value,
            unit,
            name=f"{self.id}.{field}",
            provenance=provenance,
            source=source,
            note="; ".join(part for part in (note, doubt and doubt["why"]) if part),
            interval=(doubt["low"], doubt["high"]) if doubt else None,
        )

    def _origin(self, path: str, key: str) -> tuple[Provenance, str]:
        if mine := origin_of(self.data, path):
            return Provenance.GIVEN, f"{self.name}: {mine}"
        groups = self.data.get("src", {})
        group = groups if isinstance(groups, str) else groups.get(key, groups.get("rate", ""))
        written = sources(KIND).get(group, group) or self.data.get("source", "")
        told = f"{self.name}: {dated(written, self.data)}"
        return Provenance.ASSUMED if group == "mem" else Provenance.DATASHEET, told


def switch(name: str) -> Part:
    """The switch of that id or alias; CatalogError names the nearest where there is none."""
    return _part(name, "switch")


def nic(name: str) -> Part:
    """The network card of that id or alias."""
    return _part(name, "nic")


def optic(name: str) -> Part:
    """The optical module of that id or alias."""
    return _part(name, "optic")


def cable(name: str) -> Part:
    """The copper cable of that id or alias."""
    return _part(name, "cable")


def part(name: str) -> Part:
    """Any of them."""
    return _read(row(KIND, name))


def parts() -> list[Part]:
    """All of them."""
    return [_read(data) for data in rows(KIND).values()]


def _part(name: str, kind: str) -> Part:
    found = part(name)
    if found.kind != kind:
        known = ", ".join(one.id for one in parts() if one.kind == kind)
        raise CatalogError(
            f"{found.name} is no {kind} but a {found.kind}", where=kind, remedy=known
        )
    return found


def _read(data: dict[str, Any]) -> Part:
    return Part(data["id"], data["name"], data["kind"], data)
