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

    A gateway that does not answer has no `replicas` in its status, and then nothing is known; where
    one of its workers does not, what that one holds is not. Requests at
    replicas are those that all of them report or that the gateway sent, whichever are more: others
    may send there too. That is asked of the sums. A report is up to seconds old, so of each replica
    alone it would count a request that ended here and began there twice, and every answer does so.
    """
    if "replicas" not in status:
        return Look(now_ns, None, None, 0, replicas, 0)
    at = [one for one in _of(status, model) if State(one["state"]) not in _GOING]
    ready = [one for one in at if one["state"] == State.READY]
    running: int | None = None
    waiting: int | None = None
    silent = any(_is_silent(one) for one in ready) or status.get("silent_workers", 0)
    if not silent:
        sent = sum(one["in_flight"] for one in at)
        waiting = sum(one["waiting"] or 0 for one in ready)
        running = max(sum(one["running"] or 0 for one in ready), sent - waiting)
    queued = sum(row["queued"] for row in status["queues"] if row["model"] == model)
    queued += status["held"].get(model, 0)
    return Look(now_ns, running, waiting, queued, replicas, len(ready))


def _of(status: Mapping[str, Any], model: str) -> list[Mapping[str, Any]]:
    return [one for one in status["replicas"] if model in (one["models"] or [model])]


def _is_silent(ready: Mapping[str, Any]) -> bool:
    """Whether a ready replica has not said for long what it does."""
    reported_s: float | None = ready["reported_s_ago"]
    return reported_s is not None and reported_s > STALE_S
