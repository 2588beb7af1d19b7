"""What counts for and against a version."""

import json

import pytest

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
    assert (found.requests, found.errors) == (3, 2)
    assert [one.count for one in (*found.ttft.values(), *found.tpot.values())] == [1, 1]


def test_a_failure_that_another_replica_made_good_counts_against_who_failed() -> None:
    arms = Arms()
    arms.begin("m")
    rescued = exchange(version="v1")
    rescued.retries = 1
    rescued.failed_at("v2")
    arms.saw(rescued)
    broken = exchange(502)
    broken.failed_at("v2")  # the last attempt's failure is the answer: one failure, not two
    arms.saw(broken)
    found = evidence([arms.told()])["m"]
    assert (found["v2"].requests, found["v2"].errors) == (2, 2)
    assert (found["v1"].requests, found["v1"].errors, found["v1"].ttft) == (1, 0, {})


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
    assert found.ttft.keys() == wanted.ttft.keys()
    assert found.variance == pytest.approx(wanted.variance)
    assert found.ttft[0].mean == pytest.approx(wanted.ttft[0].mean)
