"""What counts for and against a version."""

import json

from ridgeline.serving.gateway.arms import Arms, evidence
from ridgeline.serving.gateway.record import CANCELLED, Exchange
from ridgeline.serving.policy.gate import Arm

MS = 1_000_000


def exchange(
    status: int = 200, version: str = "v2", error: str = "", ttft_ms: int = 50
) -> Exchange:
    found = Exchange("r", "/v1/chat/completions", 0, 0.0, model="m", version=version)
    found.status, found.error = status, error
    found.said(1, ttft_ms * MS)
    found.said(10, (ttft_ms + 100) * MS)
    return found


def test_an_answer_has_its_times_and_a_failure_has_none() -> None:
    arms = Arms()
    arms.begin("m")
    for one in (exchange(), exchange(502), exchange(200, error="broke off")):
        arms.saw(one)
    (found,) = evidence([arms.told()])["m"].values()
    assert (found.requests, found.errors, found.ttft.count, found.tpot.count) == (3, 2, 1, 1)


def test_what_the_client_did_is_nobodys_fault() -> None:
    arms = Arms()
    arms.begin("m")
    for one in (exchange(400), exchange(429), exchange(CANCELLED, error="the client left")):
        arms.saw(one)
    arms.saw(exchange(version=""))
    assert evidence([arms.told()]) == {"m": {}}


def test_it_begins_anew_with_a_split_and_ends_with_it() -> None:
    arms = Arms()
    arms.saw(exchange())
    assert arms.told() == {}
    arms.begin("m")
    arms.saw(exchange())
    arms.begin("m")
    assert evidence([arms.told()]) == {"m": {}}
    arms.end("m")
    assert arms.told() == {}


def test_workers_together_have_seen_what_one_would_have() -> None:
    one, other, both = Arms(), Arms(), Arms()
    for arms in (one, other, both):
        arms.begin("m")
    for number in range(20):
        seen = exchange(500 if number % 7 == 0 else 200, ttft_ms=50 + number)
        (one if number % 3 else other).saw(seen)
        both.saw(seen)
    told = [json.loads(json.dumps(arms.told())) for arms in (one, other)]  # over a pipe
    found, wanted = evidence(told)["m"]["v2"], evidence([both.told()])["m"]["v2"]
    assert (found.requests, found.errors) == (wanted.requests, wanted.errors)
    assert isinstance(found, Arm)
    assert abs(found.ttft.mean - wanted.ttft.mean) < 1e-9
    assert abs(found.ttft.variance - wanted.ttft.variance) < 1e-9
