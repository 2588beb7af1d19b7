"""What a status says of a model: nothing that is not there, and nothing twice."""

import pytest

from ridgeline.serving.control.looks import look_of


def replica(**more):
    usual = {
        "models": ["m"], "state": "ready", "in_flight": 0, "running": 0, "waiting": 0,
        "reported_s_ago": 0.5,
    }  # fmt: skip
    return {**usual, **more}


def status(*replicas, queued=0, held=0):
    queues = [{"model": "m", "queued": queued}, {"model": "other", "queued": 99}]
    return {"replicas": list(replicas), "queues": queues, "held": {"m": held} if held else {}}


def test_all_that_waits_anywhere_is_seen() -> None:
    seen = status(
        replica(running=3, waiting=2, in_flight=1),
        replica(in_flight=8, running=2),
        queued=5,
        held=6,
    )
    look = look_of(seen, "m", 2, 7)
    assert (look.running, look.waiting, look.queued, look.ready) == (9 - 2, 2, 11, 2)
    assert look.demand == 20


def test_a_request_that_ended_here_and_began_there_is_one() -> None:
    """The first one's report is older than the end, the second one's than the beginning."""
    seen = status(replica(running=4, in_flight=3), replica(running=4, in_flight=5))
    assert look_of(seen, "m", 2, 7).demand == 8


@pytest.mark.parametrize(
    ("one", "known"),
    [
        (
            replica(in_flight=9, running=4, waiting=2),
            (7, 2),
        ),  # the report is older than what we sent
        (replica(in_flight=1, running=4, waiting=2), (4, 2)),  # others send there too
        (replica(in_flight=3, running=None, waiting=None, reported_s_ago=None), (3, 0)),
        (replica(reported_s_ago=11.0), (None, None)),
        (replica(state="loading", reported_s_ago=None), (0, 0)),
        (replica(state="draining", in_flight=5), (0, 0)),
        (replica(models=["other"], in_flight=5), (0, 0)),
        (replica(models=[], state="starting", reported_s_ago=None), (0, 0)),
    ],
)
def test_what_is_at_a_replica(one, known) -> None:
    look = look_of(status(one), "m", 1, 7)
    assert (look.running, look.waiting) == known


def test_one_silent_replica_makes_the_whole_unknown() -> None:
    look = look_of(status(replica(running=3), replica(reported_s_ago=60)), "m", 2, 7)
    assert look.demand is None


def test_what_a_worker_that_hangs_holds_is_not_known() -> None:
    seen = status(replica(running=3), queued=5) | {"silent_workers": 1}
    look = look_of(seen, "m", 1, 7)
    assert (look.demand, look.queued, look.ready) == (None, 5, 1)
    assert look_of(seen | {"silent_workers": 0}, "m", 1, 7).demand == 8


def test_a_gateway_that_does_not_answer_says_nothing() -> None:
    look = look_of({}, "m", 4, 7)
    assert (look.demand, look.queued, look.replicas) == (None, 0, 4)
