"""Twenty models on a few accelerators: starts that a packing expects, and simulated ones (S081).

Residents are there for good. The others share accelerators, one model on each at a time: a pool of
devices, replicas from none to one, and the keep-alive of the packing, by the autoscaler's own rule.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import takewhile
from random import Random

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.plan.residents import Machines, Packing, Served
from ridgeline.serving.policy.scale import Settings
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.log import Log
from ridgeline.serving.simulate.setup import Engine, Gateway, Model, Place, Scaling, Serving
from ridgeline.serving.simulate.world import World
from ridgeline.workload import Request

GB = 1e9
_SIZES_GB = (14, 16, 16, 28, 32, 40, 65, 65)
_LOOKS_S = 5.0


@dataclass(frozen=True, slots=True)
class Started:
    """A simulated fleet: starts a second beside those expected, and starts that had to wait."""

    expected_per_s: float
    per_s: float
    starts: int
    waited: int


def fleet(seed: int, models: int = 20) -> list[Served]:
    """Models of usual sizes, asked for twice a minute to once in three hours, read at 5 GB/s."""
    chance = Random(seed)
    found = []
    for number in range(models):
        size_gb = chance.choice(_SIZES_GB)
        rate_hz = 10 ** chance.uniform(-4.0, -1.5)
        found.append(Served(f"model-{number}", size_gb * GB, rate_hz, 2 + size_gb / 5))
    return found


def started(packing: Packing, machines: Machines, *, days: float, seed: int = 1) -> Started:
    """So many days of those on demand, each asked for at random."""
    lasts_s = days * 86_400
    requests = merge(*(_asks(one, lasts_s, seed) for one in packing.on_demand), key=_when)
    events: list[str] = []
    world = World(_serving(packing, machines), Log(events.append))
    outcome = world.run(OpenLoop(requests, packing.on_demand[0].name))
    world.check()
    starts = sum('"event": "started"' in one for one in events)
    waited = sum('"event": "pends"' in one for one in events)
    return Started(packing.starts_per_s, starts / outcome.lasted_s, starts, waited)


def _when(request: Request) -> float:
    return request.at_s


def _asks(one: Served, lasts_s: float, seed: int) -> Iterator[Request]:
    chance = Random(f"{seed} {one.name}")

    def times() -> Iterator[float]:
        at_s = 0.0
        while True:
            at_s += chance.expovariate(one.rate_hz)
            yield at_s

    for at_s in takewhile(lambda at_s: at_s < lasts_s, times()):
        yield Request(at_s, 100, 10, model=one.name)


def _serving(packing: Packing, machines: Machines) -> Serving:
    engine = Engine(Machine(Plain(machines.answer_s / 10, 0.0, 1e9), 100_000))
    keep_s = packing.keep_s - _LOOKS_S / 2  # it sees half a look late that nobody asks
    settings = Settings(0, 1, 1e6, down_after_s=keep_s, zero_after_s=keep_s)
    models = tuple(
        Model(
            one.name, engine, 0, Scaling(settings, every_s=_LOOKS_S), {"load": one.start_s},
            place=Place(pool="shared"),
        )
        for one in packing.on_demand
    )  # fmt: skip
    held_s = 10 * max(one.start_s for one in packing.on_demand)
    return Serving(models, gateway=Gateway(hold_s=held_s), pools={"shared": packing.shared})
