"""What the database says of decisions and rollouts, as the console asks for it."""

import json
import time

import pytest
from sqlalchemy import insert

from ridgeline.serving.control.rollout_log import RolloutLog
from ridgeline.serving.control.versions import Version
from ridgeline.serving.policy.gate import Criteria
from ridgeline.serving.policy.rollout import Plan
from ridgeline.store.database import open_store
from ridgeline.store.tables import scale_decisions
from ridgeline.web.control_data import MOST_DECISIONS, MOST_ROLLOUTS, ControlData, control_view

NOW_NS = 1_800_000_000_000_000_000


@pytest.fixture
def store():
    engine = open_store("sqlite:///:memory:")
    yield engine
    engine.dispose()


def decided(store, count: int) -> None:
    rows = [
        {
            "model": f"m{number % 2}",
            "at_ns": NOW_NS + number * 1_000_000_000,
            "before": number,
            "replicas": number + 1,
            "demand": None if number % 2 else number,
            "queued": 0,
            "reason": f"the {number}th",
        }
        for number in range(count)
    ]
    with store.begin() as connection:
        connection.execute(insert(scale_decisions), rows)


def test_of_nothing_there_is_nothing_and_nothing_is_left_out(store) -> None:
    view = control_view(store, NOW_NS)
    assert (view.now_unix_s, view.since_unix_s) == (1.8e9, None)
    assert view.decisions == view.rollouts == ()


def test_decisions_are_newest_first_and_an_unknown_demand_is_none(store) -> None:
    decided(store, 3)
    view = control_view(store, NOW_NS)
    assert [(one.model, one.before, one.replicas) for one in view.decisions] == [
        ("m0", 2, 3),
        ("m1", 1, 2),
        ("m0", 0, 1),
    ]
    assert [one.demand for one in view.decisions] == [2, None, 0]
    assert [one.at_unix_s - 1.8e9 for one in view.decisions] == [2, 1, 0]
    assert view.since_unix_s is None


def test_the_answer_is_bounded_and_says_from_when_on_it_is_whole(store) -> None:
    decided(store, MOST_DECISIONS + 5)
    view = control_view(store, NOW_NS)
    assert len(view.decisions) == MOST_DECISIONS
    assert view.since_unix_s == view.decisions[-1].at_unix_s == 1.8e9 + 5


def test_rollouts_are_told_as_the_command_line_tells_them(store) -> None:
    log = RolloutLog(store)
    for number in range(MOST_ROLLOUTS + 2):
        old, new = Version(None, {"step": "1s"}), Version(None, {"step": "2s"})
        log.start(f"m{number}", old, new, Plan(), Criteria())
    told = control_view(store, NOW_NS).rollouts
    assert [one["model"] for one in told] == [one.rollout.model for one in log.latest()]
    assert len(told) == MOST_ROLLOUTS
    assert told[0] == log.latest()[0].told()
    assert set(told[0]) >= {"phase", "steps", "step", "old", "new", "evidence", "reason", "wish"}


async def test_an_answer_is_kept_for_a_while(store) -> None:
    asked = []

    def now_ns() -> int:
        asked.append(time.monotonic())
        return NOW_NS

    data = ControlData(store, now_ns)
    answers = {await data.view() for _ in range(20)}
    await data.close()
    assert len(answers) == 1
    assert len(asked) < 20
    assert json.loads(answers.pop())["decisions"] == []
