"""Which of many models stay in memory, and which are loaded when somebody asks (ledger row S081).

Some accelerators hold models for good, several where they fit. Each of the others holds one model
at a time, for as long as it is asked for and a while longer. That while is as long as it can be
with hardly any start finding all of them taken, so it is shorter the more models share them.

    starts a second    sum over those on demand of rate x P(stopped)             `stopped_share`
    taken              a sum of independent yes and no, each of P(not stopped)   `taken_tail`

A model that is asked for all the time stops as rarely as one that nobody asks for starts. It is
those in between that cost starts, so neither the largest nor the busiest are the ones to keep.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from ridgeline.errors import SpecError
from ridgeline.physics.startup import stopped_share
from ridgeline.quantity import value_of

#: All shared accelerators may be taken for this share of the time; who starts then has to wait.
TAKEN = 0.02
#: Who stops sooner than that starts all the time.
_KEEP_LEAST_S, _KEEP_MOST_S = 30.0, 1e6
_HALVINGS = 30


@dataclass(frozen=True, slots=True)
class Served:
    """A model: what its weights take, how often it is asked for, and how long a start takes."""

    name: str
    weights_bytes: float
    rate_hz: float
    start_s: float


@dataclass(frozen=True, slots=True)
class Machines:
    """Accelerators with so much room for weights each; an answer takes `answer_s`."""

    count: int
    room_bytes: float
    answer_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Packing:
    """Who stays where, who is loaded on demand, and what comes of it.

    `resident` has the models of each accelerator that holds some for good; `shared` others load
    those `on_demand`, which stop after `keep_s` without a request.
    """

    resident: tuple[tuple[Served, ...], ...]
    on_demand: tuple[Served, ...]
    shared: int
    keep_s: float
    starts_per_s: float


def pack(models: Sequence[Served], machines: Machines) -> Packing:
    """The packing with the fewest starts that was found, over all ways to divide accelerators.

    For each division: the model whose stay saves most for its bytes first, each where it fits
    best; then exchanges for as long as one saves starts. Raises SpecError where a model fits no
    accelerator.
    """
    _must_fit(models, machines)
    return _fewest(partial(_improved, models, machines), machines)


def first_fit(models: Sequence[Served], machines: Machines) -> Packing:
    """Each model in the order given on the first accelerator with room, the rest on demand."""
    _must_fit(models, machines)

    def fill(resident: int) -> Packing | None:
        return _settled(_filled(models, resident, machines), models, machines)

    return _fewest(fill, machines)


def taken_tail(shares: Iterable[float], places: int) -> float:
    """The chance that all places are taken by independent things, each there for its share.

    Source: Poisson's binomial distribution, one thing after the other.
    """
    chances = [1.0]
    for share in shares:
        more = [0.0, *(chance * share for chance in chances)]
        chances = [
            stays * (1 - share) + comes for stays, comes in zip([*chances, 0.0], more, strict=True)
        ]
    return max(0.0, 1.0 - sum(chances[:places]))


def _must_fit(models: Sequence[Served], machines: Machines) -> None:
    for one in models:
        if one.weights_bytes > machines.room_bytes:
            raise SpecError(
                f"{one.name} has {one.weights_bytes / 1e9:.0f} GB of weights, and an accelerator "
                f"has room for {machines.room_bytes / 1e9:.0f}",
                where="models",
                remedy="a replica over several accelerators is no part of a packing",
            )


def _fewest(made: Callable[[int], Packing | None], machines: Machines) -> Packing:
    found = [one for resident in range(machines.count + 1) if (one := made(resident)) is not None]
    if not found:
        raise SpecError(
            "they do not all fit, and those that are loaded on demand would wait for each other",
            where="accelerators",
            remedy="one more",
        )
    return min(found, key=lambda one: one.starts_per_s)


def _filled(
    models: Iterable[Served], count: int, machines: Machines, *, tightest: bool = False
) -> tuple[tuple[Served, ...], ...]:
    """Models on accelerators in this order: each on the first with room, or on the tightest."""
    there: list[list[Served]] = [[] for _ in range(count)]
    free = [machines.room_bytes] * count
    for one in models:
        fitting = [place for place in range(count) if free[place] >= one.weights_bytes]
        if fitting:
            place = min(fitting, key=lambda place: free[place]) if tightest else fitting[0]
            there[place].append(one)
            free[place] -= one.weights_bytes
    return tuple(map(tuple, there))


def _settled(
    resident: tuple[tuple[Served, ...], ...], models: Sequence[Served], machines: Machines
) -> Packing | None:
    """What comes of it; None where those on demand are too many for what they share."""
    staying = {one.name for some in resident for one in some}
    on_demand = tuple(one for one in models if one.name not in staying)
    shared = machines.count - len(resident)
    if on_demand and not shared:
        return None
    keep_s = _keep_s(on_demand, shared, machines)
    if keep_s is None:
        return None
    starts = sum(one.rate_hz * _stopped(one, keep_s, machines) for one in on_demand)
    return Packing(resident, on_demand, shared, keep_s, starts)


def _keep_s(on_demand: Sequence[Served], shared: int, machines: Machines) -> float | None:
    """The longest after which hardly any start finds all taken; None where there is none."""

    def is_rare(keep_s: float) -> bool:
        there = [1 - _stopped(one, keep_s, machines) for one in on_demand]
        return taken_tail(there, shared) <= TAKEN

    if len(on_demand) <= shared:
        return _KEEP_MOST_S
    if not is_rare(_KEEP_LEAST_S):
        return None
    low, high = _KEEP_LEAST_S, _KEEP_MOST_S
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if is_rare(middle) else (low, middle)
    return low


def _stopped(one: Served, keep_s: float, machines: Machines) -> float:
    """The share of its requests that have to start it."""
    return float(value_of(stopped_share(one.rate_hz, one.start_s, keep_s + machines.answer_s)))


def _improved(models: Sequence[Served], machines: Machines, resident: int) -> Packing | None:
    def settled(order: Sequence[Served]) -> Packing | None:
        return _settled(_filled(order, resident, machines, tightest=True), models, machines)

    first = _settled(((),) * resident, models, machines)
    keep_s = first.keep_s if first else _KEEP_LEAST_S
    order = sorted(
        models,
        key=lambda one: -one.rate_hz * _stopped(one, keep_s, machines) / one.weights_bytes,
    )
    best, goes_on = settled(order), True
    while goes_on:
        goes_on = False
        for low in range(len(order)):
            for high in range(low + 1, len(order)):
                other = [*order]
                other[low], other[high] = other[high], other[low]
                found = settled(other)
                if found and (best is None or found.starts_per_s < best.starts_per_s * (1 - 1e-9)):
                    best, order, goes_on = found, other, True
    return best
