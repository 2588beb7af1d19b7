"""Where replicas are and what part of a request they do, of a spec as the simulator's values."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from ridgeline.errors import SpecError
from ridgeline.serving.simulate.setup import Link, Model, Place, Region, Role, Spot
from ridgeline.serving.simulated_spec import Group, Prefill
from ridgeline.serving.spec import ModelSpec, ServerEngine
from ridgeline.spec import HardwareSpec, RegionSpec


def grouped(spec: ModelSpec, group: Group) -> ModelSpec:
    """The model's spec as if all of it were this group."""
    changes: dict[str, Any] = {"min": group.min, "max": group.max, "usd_per_hour": Decimal(0)}
    if group.start is not None:
        changes["start"] = group.start
    if group.slots is not None:
        changes["slots"] = group.slots
    engine = spec.engine
    if group.tensor_parallel is not None:
        if not isinstance(engine, ServerEngine):
            raise SpecError(
                "is of engines that split a model",
                where=f"models {spec.name}.simulated.groups {group.name}.tensor_parallel",
                remedy="leave it out",
            )
        engine = engine.model_copy(update={"tensor_parallel": group.tensor_parallel})
    return spec.model_copy(
        update={
            "on": group.on,
            "engine": engine,
            "replicas": spec.replicas.model_copy(update=changes),
        }
    )


def with_role(model: Model, role: str, prefill: Prefill | None) -> Model:
    """The kind with its part of a request."""
    if role != Role.PREFILL or prefill is None:
        return replace(model, role=Role(role))
    link = Link(prefill.bandwidth, prefill.latency)
    return replace(model, role=Role.PREFILL, link=link, apart_tokens=prefill.apart_from)


def place_of(on: HardwareSpec | None, devices: int, regions: Sequence[RegionSpec]) -> Place:
    """Where replicas of so many devices are; on no hardware there is no end of devices."""
    first = regions[0].name if regions else ""
    if on is None:
        return Place(first)
    spot = Spot(on.spot.per_hour, on.spot.notice) if on.spot is not None else None
    return Place(on.region or first, on.name, devices, spot)


def check_devices(models: Iterable[Model], hardware: Mapping[str, HardwareSpec]) -> None:
    """SpecError where the first replicas of all models take more devices than there are."""
    wanted: Counter[str] = Counter()
    for model in models:
        wanted[model.place.pool] += model.replicas * model.place.devices
    for name, one in hardware.items():
        if wanted[name] > one.gpus:
            raise SpecError(
                f"its models begin with {wanted[name]} devices, and there are {one.gpus}",
                where=f"hardware {name}",
                remedy="more nodes, or fewer replicas",
            )


def regions_of(regions: Sequence[RegionSpec]) -> tuple[Region, ...]:
    """All of them; one without a name where none is named."""
    return tuple(Region(one.name, dict(one.away)) for one in regions) or (Region(),)


def home_of(tenant: str, regions: Sequence[RegionSpec]) -> str:
    """Where its clients are: the first region where none says so."""
    return next((one.name for one in regions if tenant in one.clients), "")


def residency_of(tenant: str, regions: Sequence[RegionSpec]) -> frozenset[str] | None:
    """Where its data may be; None: anywhere."""
    return frozenset(one.name for one in regions if tenant in one.keeps) or None
