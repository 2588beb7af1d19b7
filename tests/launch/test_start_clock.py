"""Stages without a gap, from the system's start of the process on."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.launch import start_clock
from ridgeline.launch.start_clock import StartClock, process_began_s, stage_event

STAGES = st.lists(st.tuples(st.sampled_from(["import", "weights", "load"]), st.floats(0, 1e4)))
TICK_S = 0.02


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@given(st.floats(0, 1e4), STAGES)
def test_stages_sum_to_all_the_time_since_the_process_began(first_s: float, stages) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(start_clock, "time", clock)
        turns: list[tuple[str, str, float]] = []
        start = StartClock(100.0, lambda *turn: turns.append(turn))
        clock.now_s += first_s
        for stage, spent_s in stages:
            start.begin(stage)
            clock.now_s += spent_s
        start.end()
        assert sum(start.spent_s.values()) == pytest.approx(clock.now_s - 100.0)
    assert [turn[0] for turn in turns] == [stage for stage, _ in stages]
    assert [turn[1] for turn in turns] == ["process", *(stage for stage, _ in stages)][: len(turns)]


def test_a_stage_that_begins_says_what_the_one_before_took(monkeypatch) -> None:
    clock = Clock()
    monkeypatch.setattr(start_clock, "time", clock)
    said = []
    start = StartClock(99.5, lambda *turn: said.append(stage_event(*turn)))
    clock.now_s = 101.0
    start.begin("import")
    assert said == [{"event": "stage", "stage": "import", "ended": "process", "spent_s": 1.5}]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux says it")
def test_a_process_began_when_it_was_started() -> None:
    before_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True
    ) as child:
        after_s = time.monotonic()
        began_s = process_began_s(child.pid)
        child.communicate("\n")
    assert before_s - TICK_S <= began_s <= after_s + TICK_S


def test_of_a_process_that_is_not_there_nothing_is_known_but_now() -> None:
    before_s = time.monotonic()
    assert before_s <= process_began_s(2**22 + 1) <= time.monotonic()
