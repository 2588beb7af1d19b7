"""A sweep as plain data; apart from `data`, so that an answer alone needs no numpy."""

from typing import Any

from ridgeline.units import base_symbol
from ridgeline.working.data import bare, measure
from ridgeline.working.sweep import Sweep


def sweep_data(found: Sweep) -> dict[str, Any]:
    """All points of a sweep, refused ones included."""
    unit = found.target.unit
    return {
        "name": found.target.name,
        "base_unit": base_symbol(unit.dimension) if unit else None,
        "points": [bare(point) for point in found.points] if unit else found.points,
        "text": [found.point(index) for index in range(len(found.points))],
        "values": {
            name: {"base_unit": base_symbol(one.unit.dimension), "values": bare(one.values)}
            for name, one in found.columns.items()
        },
        "headline": found.headline,
        "binds": found.binds,
        "changes": [{"point": index, "to": text} for index, text in found.changes.items()],
        "knee": {"point": found.knee.index, "turn": found.knee.turn, "reason": found.knee.reason},
        "versus": found.versus or None,
        "slo": _slo(found),
        "refused": [{"point": index, "why": text} for index, text in found.refused.items()],
        "vectorised": found.is_vectorised,
    }


def _slo(found: Sweep) -> dict[str, Any] | None:
    if found.slo is None:
        return None
    return {"value": found.slo.name, "most": measure(found.slo.most), "last": found.slo.last}
