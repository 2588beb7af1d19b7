"""What the autoscaler did stays on record, and only one controller acts."""

import time

from sqlalchemy import Engine

from ridgeline.serving.control import scale_log
from ridgeline.serving.control.scale_log import Lease, ScaleLog
from ridgeline.serving.policy.scale import Look, Scaled

LOOK = Look(0, 3, 0, 2, 1, 1)


def test_decisions_are_read_newest_first(store: Engine) -> None:
    log = ScaleLog(store)
    for number in range(3):
        log.wrote("chat", number, Scaled(number + 1, f"reason {number}", 5), LOOK)
    log.wrote("code", 0, Scaled(1, "blind"), LOOK)
    assert [(one.before, one.replicas, one.reason) for one in log.latest("chat", most=2)] == [
        (2, 3, "reason 2"),
        (1, 2, "reason 1"),
    ]
    assert log.latest()[0].model == "code"
    assert log.latest("code")[0].demand is None


def test_old_decisions_go(store: Engine, monkeypatch) -> None:
    log = ScaleLog(store)
    log.wrote("chat", 0, Scaled(1, "old"), LOOK)
    later_ns = time.time_ns() + (scale_log.KEPT_S + 1) * 10**9
    monkeypatch.setattr(scale_log.time, "time_ns", lambda: later_ns)
    log.wrote("chat", 1, Scaled(2, "new"), LOOK)
    assert [one.reason for one in log.latest()] == ["new"]


def test_one_holds_the_lease_and_the_next_after_it(store: Engine, monkeypatch) -> None:
    mine, other = Lease(store, "scaling", "me"), Lease(store, "scaling", "you")
    assert not mine.held
    assert mine.renew()
    assert not other.renew()
    assert mine.renew()
    assert (mine.held, other.held) == (True, False)
    mine.give_up()
    assert other.renew()
    assert not mine.renew()
    assert (mine.held, other.held) == (False, True)


def test_a_lease_that_is_not_renewed_ends_for_its_holder_too(store: Engine, monkeypatch) -> None:
    mine, other = Lease(store, "scaling", "me"), Lease(store, "scaling", "you")
    assert mine.renew()
    now, later = time.monotonic_ns(), time.time_ns() + 11 * 10**9
    monkeypatch.setattr(scale_log.time, "monotonic_ns", lambda: now + 11 * 10**9)
    monkeypatch.setattr(scale_log.time, "time_ns", lambda: later)
    assert not mine.held
    assert other.renew()
