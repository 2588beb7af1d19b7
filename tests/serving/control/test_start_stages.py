"""A start as a timeline: it adds up, and says what to fix."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import ModelError
from ridgeline.launch.start_clock import stage_event
from ridgeline.platform.plan import topics
from ridgeline.serving.control.start_stages import FIXES, Timeline, fix, timeline, under_way
from ridgeline.topics import ask

EVENTS = [
    stage_event("import", "process", 0.4),
    {"event": "listening", "url": "http://127.0.0.1:1"},
    stage_event("weights", "import", 1.6),
    stage_event("load", "weights", 0.1),
    stage_event("warm-up", "load", 0.3),
]
SPENT = {"process": 0.4, "import": 1.6, "weights": 0.1, "load": 0.3, "warm-up": 0.2}
READY = {"event": "ready", "stages_s": SPENT, "start_s": 2.7}
TIMES = st.floats(0, 1e4)


def test_of_a_start_that_goes_on_the_stage_is_known_and_what_ended() -> None:
    assert timeline(EVENTS) is None
    assert under_way(EVENTS) == (
        {"process": 0.4, "import": 1.6, "weights": 0.1, "load": 0.3},
        "warm-up",
    )
    assert under_way([]) == ({}, "process")


def test_a_start_is_its_stages_beside_the_whole() -> None:
    start = timeline([*EVENTS, READY])
    assert start is not None
    assert start.sum_s == pytest.approx(2.6)
    assert start.missing_s == pytest.approx(0.1)
    assert start.adds_up
    assert start.planned_s() == pytest.approx({"init": 2.0, "load": 0.4, "warm_up": 0.2})


@given(st.dictionaries(st.sampled_from([*FIXES, "another"]), TIMES), TIMES)
def test_nothing_is_lost_between_stages_and_plan_and_the_fix_is_for_the_longest(
    stages_s: dict[str, float], whole_s: float
) -> None:
    start = Timeline(stages_s, whole_s)
    assert sum(start.planned_s().values()) == pytest.approx(start.sum_s)
    assert start.sum_s + start.missing_s == pytest.approx(whole_s)
    first = fix(start)
    assert (first is None) == (start.sum_s == 0)
    if first is not None:
        assert stages_s[first.stage] == max(stages_s.values())
        assert first.share == pytest.approx(stages_s[first.stage] / start.sum_s)
        assert first.stage in first.reason


@pytest.mark.parametrize(
    ("sum_s", "adds_up"), [(0.89, False), (0.91, True), (1.09, True), (1.11, False)]
)
def test_a_sum_within_a_tenth_of_the_whole_adds_up(sum_s: float, adds_up: bool) -> None:
    assert Timeline({"weights": sum_s}, 1.0).adds_up is adds_up


def test_every_stage_belongs_to_one_of_the_plan_and_has_its_fix() -> None:
    topics()
    table = ask("cold-start", {}, {}).answer.table
    planned = {row["stage"].replace(" ", "_"): row["fix"] for row in table}
    for stage, how in FIXES.values():
        assert how.startswith(planned[stage])


@pytest.mark.proves("S190")
async def test_the_stages_of_a_real_start_sum_to_the_measured_start_within_10_percent(
    tmp_path,
) -> None:
    pytest.importorskip("torch", reason="the engine needs it")
    from ridgeline.catalog.packaged import DEFAULT_MODEL, find_model
    from ridgeline.serving.bench.cold_start import started
    from ridgeline.serving.control.replicas import Launch

    try:
        model = find_model(DEFAULT_MODEL)
    except ModelError as error:
        pytest.skip(str(error))
    arguments = ["serve", str(model), "--port", "0", "--threads", "1"]
    launch = Launch("m-0", arguments, tmp_path / "log", {"RIDGELINE_CACHE": str(tmp_path)})
    cold = (await started(launch)).start  # nothing is converted yet
    warm = (await started(launch)).start
    for start in (cold, warm):
        # Node, image, weights and warm-up of the row: process, import, weights, first tokens.
        assert {"process", "import", "weights", "warm-up"} <= set(start.stages_s)
        assert all(spent_s >= 0 for spent_s in start.stages_s.values())
        assert start.sum_s == pytest.approx(start.whole_s, rel=0.10), dict(start.stages_s)
        first = fix(start)
        assert first is not None
        assert start.stages_s[first.stage] == max(start.stages_s.values())
        assert first.how == FIXES[first.stage][1]
    assert warm.stages_s["weights"] < cold.stages_s["weights"]
