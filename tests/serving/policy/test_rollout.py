"""Step by step to the new version, back at any time, and the same again after a crash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.gate import Judgement, Verdict
from ridgeline.serving.policy.rollout import Phase, Plan, Rollout, Seen, advance, desired

NS = 1_000_000_000
PLAN = Plan(steps=(0.05, 0.5), start_most_s=100, keep_s=60)
BEGUN = Rollout("r1", "chat", "v1", "v2")


def judged(verdict: Verdict, reason: str = "so") -> Judgement:
    return Judgement(verdict, (), 100, reason)


def after(rollout: Rollout, *, at_s: float = 1, **seen) -> Rollout:
    return advance(rollout, Seen(round(at_s * NS), **seen), PLAN)


GOOD = {"has_room": True, "ready": 1, "is_alike": True, "likeness": "0.99 alike"}


def test_the_whole_way() -> None:
    canary = after(BEGUN, **GOOD)
    assert (canary.phase, canary.step) == (Phase.CANARY, 0)
    assert "5%" in canary.reason
    assert after(canary, ready=1) == canary
    assert after(canary, ready=1, judgement=judged(Verdict.WAIT)) == canary
    second = after(canary, ready=1, at_s=5, judgement=judged(Verdict.PASS))
    assert (second.phase, second.step, second.since_ns) == (Phase.CANARY, 1, 5 * NS)
    keeping = after(second, ready=1, at_s=10, judgement=judged(Verdict.PASS))
    assert keeping.phase is Phase.KEEPING
    assert after(keeping, at_s=69) == keeping
    assert after(keeping, at_s=70).phase is Phase.DONE


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ({"has_room": False}, "no room"),
        ({"has_room": True, "ready": 1, "is_alike": False, "likeness": "code 0.4"}, "code 0.4"),
        ({"has_room": True, "at_s": 101}, "not ready"),
        ({"wish": "abort"}, "operator"),
    ],
)
def test_what_ends_it_before_any_request_was_sent(seen, says) -> None:
    ended = after(BEGUN, **seen)
    assert ended.phase is Phase.BACK
    assert says in ended.reason


def test_a_worse_version_goes_back_whatever_an_operator_wishes() -> None:
    canary = after(BEGUN, **GOOD)
    back = after(canary, ready=1, wish="promote", judgement=judged(Verdict.FAIL, "TTFT 1.4"))
    assert back.phase is Phase.BACK
    assert "TTFT 1.4" in back.reason
    assert after(canary, ready=0, was_ready=True).phase is Phase.BACK


def test_a_controller_that_begins_anew_waits_for_the_replicas_to_come_back() -> None:
    canary = after(BEGUN, **GOOD)
    assert after(canary, ready=0, watched_s=90) == canary
    assert after(canary, ready=0, watched_s=101).phase is Phase.BACK


def test_an_operator_may_promote_early_and_go_back_late() -> None:
    canary = after(BEGUN, **GOOD)
    keeping = after(canary, ready=1, wish="promote")
    assert keeping.phase is Phase.KEEPING
    assert after(keeping, wish="abort").phase is Phase.BACK
    assert after(keeping, wish="promote").phase is Phase.DONE
    assert after(after(keeping, wish="promote"), wish="abort").phase is Phase.DONE


looks = st.builds(
    Seen,
    now_ns=st.integers(0, 200).map(lambda s: s * NS),
    has_room=st.sampled_from([None, True, False]),
    ready=st.integers(0, 2),
    was_ready=st.booleans(),
    watched_s=st.floats(0, 200),
    is_alike=st.sampled_from([None, True, False]),
    judgement=st.sampled_from([None, *map(judged, Verdict)]),
    wish=st.sampled_from(["", "promote", "abort"]),
)


@given(st.lists(looks, max_size=20))
def test_while_requests_may_come_back_the_old_version_is_there(all_seen) -> None:
    rollout = BEGUN
    for seen in all_seen:
        before, rollout = rollout, advance(rollout, seen, PLAN)
        there = desired(rollout, PLAN)
        assert desired(rollout, PLAN) == there  # whoever reads the state again does the same
        weight = there.split.weight
        assert (weight > 0) <= (there.shares.get("v2", 0) > 0)  # no request to nobody
        assert (weight < 1) <= (there.shares.get("v1", 0) > 0)
        if not rollout.is_over:
            assert there.shares["v1"] == 1.0  # it could take everything back at once
        if before.is_over:
            assert rollout == before
        if rollout != before:
            assert rollout.reason
