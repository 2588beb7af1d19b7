"""What an operator asks for and where a rollout is, on each kind of database."""

import pytest
from sqlalchemy import Engine

from ridgeline.errors import SpecError
from ridgeline.serving.control.rollout_log import RolloutLog
from ridgeline.serving.control.versions import Version
from ridgeline.serving.policy.gate import Criteria
from ridgeline.serving.policy.rollout import Phase, Plan, Rollout

OLD, NEW, NEXT = (Version("m.gguf", {"dtype": dtype}) for dtype in ("bf16", "int8", "fp32"))
PLAN = Plan(steps=(0.1, 0.5), keep_s=5.0)


def begun(store: Engine, model: str = "chat"):
    log = RolloutLog(store)
    return log, log.start(model, OLD, NEW, PLAN, Criteria(effect=1.1))


def moved(log: RolloutLog, kept, phase: Phase, **more):
    rollout = kept.rollout
    after = Rollout(rollout.id, rollout.model, rollout.old, rollout.new, phase, **more)
    log.moved(kept, after, OLD, {"planned": 7})
    return log.latest(rollout.model)[0]


def test_a_rollout_is_as_it_was_asked_for(store: Engine) -> None:
    log, kept = begun(store)
    (found,) = log.going_on()
    assert found == kept
    assert (found.plan, found.criteria) == (PLAN, Criteria(effect=1.1))
    assert (found.old, found.new) == (OLD, NEW)
    assert (found.rollout.old, found.rollout.new) == (OLD.id, NEW.id)
    assert found.rollout.phase is Phase.CHECKING


def test_one_at_a_time_for_a_model(store: Engine) -> None:
    log, kept = begun(store)
    with pytest.raises(SpecError, match=f"rollout {kept.rollout.id} of chat goes on"):
        log.start("chat", OLD, NEXT, PLAN, Criteria())
    begun(store, "other")
    moved(log, kept, Phase.BACK)
    log.start("chat", OLD, NEXT, PLAN, Criteria())
    assert len(log.latest("chat")) == 2


def test_the_version_that_is_there_already_is_no_rollout(store: Engine) -> None:
    with pytest.raises(SpecError, match="already"):
        RolloutLog(store).start("chat", OLD, OLD, PLAN, Criteria())


def test_a_wish_needs_a_rollout(store: Engine) -> None:
    log, kept = begun(store)
    assert log.wish("chat", "abort") == kept.rollout.id
    assert log.going_on()[0].wish == "abort"
    moved(log, kept, Phase.BACK)
    for wish in ("abort", "promote"):
        with pytest.raises(SpecError, match="no rollout of chat goes on"):
            log.wish("chat", wish)


def test_a_wish_is_fulfilled_once_and_a_later_one_is_kept(store: Engine) -> None:
    log, _ = begun(store)
    log.wish("chat", "promote")
    (kept,) = log.going_on()
    assert moved(log, kept, Phase.KEEPING).wish == ""
    log.wish("chat", "promote")
    (kept,) = log.going_on()
    log.wish("chat", "abort")  # while the controller still acts on what it read
    assert moved(log, kept, Phase.CANARY).wish == "abort"


def test_what_is_live_changes_with_the_route_and_the_spec_has_the_last_word(store: Engine) -> None:
    log, kept = begun(store)
    assert log.live("chat", OLD) == OLD
    kept = moved(log, kept, Phase.CANARY, step=1, since_ns=9, reason="so")
    assert (kept.rollout.step, kept.rollout.since_ns, kept.rollout.reason) == (1, 9, "so")
    assert kept.evidence == {"planned": 7}
    assert log.live("chat", OLD) == OLD
    kept = moved(log, kept, Phase.KEEPING)
    assert log.live("chat", OLD) == NEW
    assert log.live("chat", NEXT) == NEXT  # the spec was changed meanwhile
    kept = moved(log, kept, Phase.BACK)
    assert log.live("chat", OLD) == OLD
    assert log.going_on() == []
