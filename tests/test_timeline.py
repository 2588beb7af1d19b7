"""Virtual time: order is a specification."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.timeline import Timeline

EVENTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40)


@given(EVENTS)
def test_the_order_is_time_then_rank_then_arrival(events: list[tuple[int, int]]) -> None:
    timeline, happened = Timeline(), list[tuple[int, int, int]]()
    for number, (at_ns, rank) in enumerate(events):
        timeline.at(at_ns, rank, happened.append, (at_ns, rank, number))
    timeline.run()
    assert happened == sorted(happened)
    assert len(happened) == len(events)
    assert len(timeline) == 0


@given(EVENTS, st.integers(0, 5))
def test_it_can_be_run_in_parts(events: list[tuple[int, int]], until_ns: int) -> None:
    timeline, happened = Timeline(), list[int]()
    for at_ns, rank in events:
        timeline.at(at_ns, rank, happened.append, at_ns)
    timeline.run(until_ns)
    assert all(at_ns <= until_ns for at_ns in happened)
    assert timeline.next_ns is None or timeline.next_ns > until_ns
    assert timeline.now_ns == until_ns
    timeline.run()
    assert happened == sorted(at_ns for at_ns, _ in events)


def test_what_happens_may_put_down_more_at_the_same_instant() -> None:
    timeline, happened = Timeline(), list[str]()

    def first(_: object) -> None:
        happened.append("first")
        timeline.at(7, 1, happened.append, "third")
        timeline.at(7, 0, happened.append, "second")

    timeline.at(7, 0, first)
    timeline.run()
    assert happened == ["first", "second", "third"]


def test_time_and_the_ranks_of_an_instant_go_forward_only() -> None:
    timeline = Timeline()
    timeline.at(7, 1, lambda _: timeline.at(6, 5, print))
    with pytest.raises(ValueError, match="6 ns"):
        timeline.run()
    timeline = Timeline()
    timeline.at(7, 1, lambda _: timeline.at(7, 0, print))
    with pytest.raises(ValueError, match="rank 0"):
        timeline.run()


def test_a_stopped_timeline_is_at_its_end() -> None:
    timeline = Timeline()
    timeline.at(3, 0, lambda _: timeline.stop())
    timeline.at(4, 0, print)
    timeline.run()
    assert (timeline.now_ns, timeline.next_ns) == (3, None)


def test_what_is_put_down_after_the_stop_never_happens() -> None:
    """Else what looks again and again would go on for ever."""
    timeline, looks = Timeline(), list[int]()

    def look(_: object) -> None:
        looks.append(timeline.now_ns)
        timeline.stop()
        timeline.at(timeline.now_ns + 1, 0, look)

    timeline.at(3, 0, look)
    timeline.run()
    assert (looks, timeline.now_ns) == ([3], 3)
