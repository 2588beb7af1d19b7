"""A new version of a model where all accelerators are taken (ledger row S194).

A Deployment's rolling update knows nothing of accelerators. Whether it gets through depends on two
roundings: a share of the replicas may be missing, rounded down, and as large a share may come on
top, rounded up. Where none may be missing and none is free, the first new replica waits for ever,
and after the progress deadline the update is called stuck. Ridgeline's own rollout looks for room
first, and says at once that there is none.
"""

from dataclasses import dataclass, replace

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.rolling import Rolling
from ridgeline.serving.policy.rollout import Plan
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.setup import Change, Engine, Model, Place, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

_BEGINS_S, _START_S, _EVERY_S = 60.0, 90.0, 0.5
BLUE_GREEN = Rolling(surge=1.0, unavailable=0.0)


@dataclass(frozen=True, slots=True)
class Update:
    """What became of an update; times count from its begin, None where it did not come so far.

    `most_devices` were in use at once, `cut` answers were not complete.
    """

    replicas: int
    free: int
    done_s: float | None
    stuck_s: float | None
    most_devices: int
    cut: int
    said: str


def updates(sizes: list[tuple[int, int]], how: Rolling | Plan) -> list[Update]:
    """One for each number of replicas and of accelerators that are free beside them."""
    return [_update(replicas, free, how) for replicas, free in sizes]


def _update(replicas: int, free: int, how: Rolling | Plan) -> Update:
    engine = Engine(Machine(Plain(0.02, 0.0005, 20_000.0), 200_000))
    old = Model("v1", engine, replicas, start_s={"start": _START_S}, serves="chat")
    old = replace(old, place=Place(pool="gpus"), rule="least-load")
    new = replace(old, name="v2", replicas=0)
    lasts_s = 1_200.0 if isinstance(how, Rolling) else 1_800.0
    outcome = simulate(
        Serving(
            (old, new),
            pools={"gpus": replicas + free},
            changes=(Change(_BEGINS_S, "v1", "v2", how),),
        ),
        OpenLoop([Request(n * _EVERY_S, 500, 100) for n in range(int(lasts_s / _EVERY_S))], "chat"),
    )
    told = [(at_s - _BEGINS_S, said) for at_s, _, said in outcome.changed]
    spans = [one for one in outcome.replicas if one.there_s]
    return Update(
        replicas,
        free,
        next((at_s for at_s, said in told if said.startswith("done")), None),
        next((at_s for at_s, said in told if said.startswith("stuck")), None),
        _most_at_once([(one.began_s, one.began_s + one.there_s) for one in spans]),
        outcome.requests - int(outcome.answered.sum()),
        told[-1][1],
    )


def _most_at_once(spans: list[tuple[float, float]]) -> int:
    """Of these spans; where one ends another may begin."""
    turns = sorted([(began, 1) for began, _ in spans] + [(ended, -1) for _, ended in spans])
    most = there = 0
    for _, more in turns:
        there += more
        most = max(most, there)
    return most
