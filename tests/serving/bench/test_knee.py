import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.bench.knee import MOST_LEVELS, NARROW, Level, Search


def level(load: float, **seen) -> Level:
    return Level(
        **{"load": load, "goodput_share": 1.0, "tokens_per_s": load, "e2e_p50_s": 1.0} | seen
    )


def searched(search: Search, world) -> list[float]:
    """Run a search against `world`, a function from load to level; the loads it tried."""
    while (load := search.next_load()) is not None:
        search.tell(world(load))
    return [seen.load for seen in search.levels]


def bears(capacity: float):
    """Goodput holds up to a capacity and is gone above it."""
    return lambda load: level(load, goodput_share=1.0 if load <= capacity else 0.2)


def test_load_doubles_until_it_is_too_much_and_then_bisects():
    search = Search(1.0, 0.9)
    loads = searched(search, bears(6.0))
    assert loads[:4] == [1.0, 2.0, 4.0, 8.0]
    assert loads[4] == pytest.approx(32**0.5)
    assert 6.0 / NARROW <= search.best.load <= 6.0


@given(st.floats(0.05, 5000), st.floats(0.1, 20))
def test_the_knee_is_found_within_a_tenth_from_any_start(capacity, start):
    search = Search(start, 0.9)
    searched(search, bears(capacity))
    if start / 2**6 <= capacity:
        assert capacity / NARROW - 1e-9 <= search.best.load <= capacity
    assert len(search.levels) <= MOST_LEVELS


@given(st.integers(1, 2000), st.integers(1, 64))
def test_workers_are_whole_and_the_last_that_holds_is_found_within_a_tenth(capacity, start):
    search = Search(float(start), 0.9, closed=True)
    loads = searched(search, bears(capacity))
    assert all(load == int(load) >= 1 for load in loads)
    assert search.best.load <= capacity <= max(search.best.load * NARROW, search.best.load + 1)


def test_a_start_that_is_too_much_goes_down():
    search = Search(8.0, 0.9)
    assert searched(search, bears(3.0))[:3] == [8.0, 4.0, 2.0]
    assert search.best.load <= 3.0


def test_a_server_that_bears_nothing_ends_the_search_without_a_knee():
    search = Search(1.0, 0.9)
    assert len(searched(search, bears(0.0))) < 10
    assert search.best is None
    assert "20.0 % is under 90 %" in search.reason


def test_a_backlog_is_saturation_though_goodput_holds():
    """Ten seconds of arrivals at twice the capacity take ten more to drain."""
    search = Search(4.0, 0.9)
    assert search.judge(level(4.0, arriving_s=10, drain_s=1.5)).borne
    verdict = search.judge(level(4.0, arriving_s=10, drain_s=10.0))
    assert not verdict.borne
    assert "10.0 s to drain 10.0 s" in verdict.reason


def test_long_answers_are_no_backlog():
    assert Search(1.0, 0.9).judge(level(1.0, e2e_p50_s=30, arriving_s=20, drain_s=31)).borne


def test_workers_that_add_no_throughput_are_saturation():
    search = Search(1.0, 0.9, closed=True)
    loads = searched(search, lambda load: level(load, tokens_per_s=min(load, 12.0) * 10))
    assert loads[:5] == [1, 2, 4, 8, 16]
    assert 12 <= search.best.load <= 16  # 16 workers still gave half again as much as 8
    assert "saturated" in search.reason
