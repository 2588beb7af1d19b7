"""A function with a 7B model, from nothing to its first token: which stage decides (row S113).

The first request finds nothing running. Each way to start is a chain of stages; the simulated first
token comes after all of them. With image and snapshot as good as they can be, what is left is the
way of 14 GB of weights: from a disk that alone takes longer than a second.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ridgeline.physics.roofline import read_s
from ridgeline.quantity import value_of
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.scale import Settings, warm_pool
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.setup import Engine, Gateway, Model, Scaling, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

GB = 1e9
WEIGHTS, IMAGE = 14 * GB, 10 * GB


def _read_s(data: float, bytes_per_s: float) -> float:
    return float(value_of(read_s(data, bytes_per_s)))


#: Ways to start, each the seconds of its stages.
CHAINS: Mapping[str, Mapping[str, float]] = {
    "as it comes": {
        "image": _read_s(IMAGE, 0.25 * GB),
        "boot and import": 20.0,
        "weights from the network": _read_s(WEIGHTS, 0.5 * GB),
        "init and graphs": 30.0,
    },
    "weights on a local disk": {
        "lazy image": 0.2,
        "snapshot": 0.3,
        "weights from NVMe": _read_s(WEIGHTS, 7 * GB),
    },
    "weights in host memory": {
        "lazy image": 0.2,
        "snapshot": 0.3,
        "weights from pinned memory": _read_s(WEIGHTS, 50 * GB),
    },
}


@dataclass(frozen=True, slots=True)
class Start:
    """A way to start: the sum of its stages, the simulated first token, warm ones to hold ready."""

    chain_s: float
    first_token_s: float
    pool: int


def start(stages: Mapping[str, float], starts_per_s: float) -> Start:
    """One request to a model of which nothing runs; the pool is for so many starts a second."""
    chain_s = sum(stages.values())
    engine = Engine(Machine(Plain(0.005, 0.0, 1e6), 100_000))
    scaling = Scaling(Settings(0, 1), every_s=0.01)
    model = Model("function", engine, 0, scaling, stages)
    gateway = Gateway(hold_s=chain_s + 10.0, probe_starting_s=0.01)
    outcome = simulate(
        Serving((model,), gateway=gateway), OpenLoop([Request(0.0, 100, 1)], "function")
    )
    return Start(chain_s, float(outcome.ttft_s()[0]), warm_pool(starts_per_s, chain_s))
