"""What a gateway's status says of one model, as the autoscaler wants to see it. Pure."""

from collections.abc import Mapping
from typing import Any

from ridgeline.serving.policy.scale import Look
from ridgeline.serving.policy.states import State

#: A replica whose last report is older than this says nothing of now.
STALE_S = 10.0
_GOING = (State.DRAINING, State.EMPTY, State.STOPPED)


def look_of(status: Mapping[str, Any], model: str, replicas: int, now_ns: int) -> Look:
    """The look at this instant; `replicas` is how many serve or start.

    A gateway that does not answer has an empty status, and then nothing is known. Requests at a
    replica are those that it reports or that the gateway sent there, whichever are more: reports
    come late, and other gateways may send there too.
    """
    if "replicas" not in status:
        return Look(now_ns, None, None, 0, replicas, 0)
    running: int | None = 0
    waiting: int | None = 0
    ready = 0
    for one in _of(status, model):
        state = State(one["state"])
        if state in _GOING:
            continue
        ready += state is State.READY
        at_it = _at(one)
        if at_it is None or running is None or waiting is None:
            running = waiting = None
            continue
        running, waiting = running + at_it[0], waiting + at_it[1]
    queued = sum(row["queued"] for row in status["queues"] if row["model"] == model)
    queued += status["held"].get(model, 0)
    return Look(now_ns, running, waiting, queued, replicas, ready)


def _of(status: Mapping[str, Any], model: str) -> list[Mapping[str, Any]]:
    return [one for one in status["replicas"] if model in (one["models"] or [model])]


def _at(replica: Mapping[str, Any]) -> tuple[int, int] | None:
    """Requests that run and that wait at a replica; None where it was ready and is silent."""
    sent = replica["in_flight"]
    if replica["state"] != State.READY:
        return sent, 0  # it cannot have more than it was sent
    reported_s = replica["reported_s_ago"]
    if reported_s is not None and reported_s > STALE_S:
        return None
    waiting = replica["waiting"] or 0
    running = replica["running"] or 0
    return max(running, sent - waiting), waiting
