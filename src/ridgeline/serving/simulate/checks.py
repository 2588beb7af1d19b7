"""What must be true of a `Serving` before it is simulated; SpecErrors say what is not.

What a spec describes has passed its own checks; these are for scenarios, and for what `--fault` and
its like add.
"""

from collections.abc import Iterable, Mapping, Sequence

from ridgeline.errors import SpecError
from ridgeline.serving.simulate.setup import Change, Model, Role, Serving, Trouble


def kinds_of(models: Iterable[Model]) -> Mapping[str, Sequence[Model]]:
    """The kinds of replicas that serve each name that clients call, in the order given."""
    kinds: dict[str, list[Model]] = {}
    for model in models:
        kinds.setdefault(model.served, []).append(model)
    return kinds


def check(serving: Serving) -> None:
    """Raises SpecError for names that are nowhere, and for kinds that do not go together."""
    names = [model.name for model in serving.models]
    regions = [region.name for region in serving.regions]
    if len(set(names)) < len(names):
        raise SpecError(f"{names}: two have one name", where="models", remedy="`serves` may agree")
    for model in serving.models:
        _known(model.place.region, regions, "region", f"models {model.name}")
        if model.place.pool:
            _known(model.place.pool, list(serving.pools), "pool", f"models {model.name}")
    for name, kinds in kinds_of(serving.models).items():
        if len({kind.engine.block_tokens for kind in kinds}) > 1:
            raise SpecError(
                "its kinds have blocks of different sizes, which routers cannot compare",
                where=f"models {name}",
                remedy="one block size for all that serve one name",
            )
        _check_roles(name, kinds)
        if len({_adapters_of(kind) for kind in kinds}) > 1:
            raise SpecError(
                "its kinds have different adapters, and a request needs its own wherever it goes",
                where=f"models {name}",
                remedy="the same adapters for all that serve one name",
            )
    for model in serving.models:
        if model.engine.tiers is not None and not model.engine.prefix_caching:
            raise SpecError(
                "tiers keep what a prefix cache finds, and it has none",
                where=f"models {model.name}",
                remedy="prefix_caching: true, or no tiers",
            )
    for tenant in serving.tenants:
        for region in tenant.residency or ():
            _known(region, regions, "region", f"tenants {tenant.name}.residency")
    for change in serving.changes:
        _check_change(change, {model.name: model for model in serving.models})
    for fault in serving.faults:
        if fault.trouble is Trouble.LOST:
            _known(fault.region, regions, "region", "faults")
        else:
            _known(fault.model, names, "model", "faults")


def _check_roles(name: str, kinds: Sequence[Model]) -> None:
    roles = {kind.role for kind in kinds}
    if roles == {Role.PREFILL}:
        raise SpecError(
            "has replicas that prefill, and none that decodes",
            where=f"models {name}",
            remedy="a kind with role decode, or both",
        )
    if any(kind.link is not None and kind.role is not Role.PREFILL for kind in kinds):
        raise SpecError(
            "has a link that nothing is sent over",
            where=f"models {name}",
            remedy="the link is of the kind that prefills",
        )


def _check_change(change: Change, models: Mapping[str, Model]) -> None:
    for name in (change.old, change.new):
        _known(name, list(models), "model", "changes")
    old, new = models[change.old], models[change.new]
    if old.served != new.served or old is new:
        raise SpecError(
            f"{change.old} and {change.new} are not two versions of one model",
            where="changes",
            remedy="two kinds that serve the same name",
        )
    if len(kinds_of(models.values())[old.served]) > 2:
        raise SpecError(
            f"{old.served} has more kinds than these two, and its changes are not simulated",
            where="changes",
            remedy="one change of a model of one kind",
        )
    if old.role is not new.role:
        raise SpecError(
            f"{change.old} does another part of a request than {change.new}",
            where="changes",
            remedy="two versions with one role",
        )
    if old.scaling is not None or new.scaling is not None:
        raise SpecError(
            f"{old.served} is scaled, and changes of such models are not simulated",
            where="changes",
            remedy="a fixed number of replicas",
        )
    if new.replicas:
        raise SpecError(
            f"{change.new} is there before its change begins",
            where="changes",
            remedy="replicas 0: the change starts them",
        )


def _adapters_of(model: Model) -> tuple[tuple[str, float], ...]:
    adapters = model.engine.adapters
    return tuple(sorted(adapters.shares.items())) if adapters is not None else ()


def _known(name: str, known: Sequence[str], what: str, where: str) -> None:
    if name not in known:
        named = ", ".join(repr(one) for one in known if one)
        remedy = f"one of: {named}" if named else f"name {what}s in the spec"
        raise SpecError(f"{name!r} is no {what}", where=where, remedy=remedy)
