"""A comparison in words."""

from ridgeline.serving.simulate.intervals import Interval
from ridgeline.serving.simulate.study import Compared
from ridgeline.serving.simulate.verdict import verdict


def row(name, before, gap, half):
    """One figure of two platforms."""
    return Compared(
        name, (Interval(before, 0.0), Interval(before + gap, 0.0)), (Interval(gap, half),)
    )


ROWS = [
    row("within the SLO (share)", 0.9, 0.066, 0.01),
    row("TTFT p50 (s)", 0.3, -0.1, 0.02),
    row("TTFT p90 (s)", 0.8, -0.2, 0.1),
    row("TTFT p99 (s)", 1.0, -0.31, 0.09),
    row("TPOT p99 (s)", 0.05, 0.0001, 0.001),
    row("whole p99 (s)", 10.0, 1.0, 0.5),
    row("cost ($)", 100.0, 12.0, None),
]
NAMES = ("a", "b")


def test_it_names_what_differs_by_how_much_and_the_cost():
    assert verdict(NAMES, ROWS, 0, (True, True)) == (
        "b is better than a on the share within the SLO by 6.6 points (95 % interval 5.6 to 7.6) "
        "and TTFT p99 by 31 % (95 % interval 22 to 40 %), worse on whole answers p99 by 10 % "
        "(95 % interval 5 to 15 %), the rest does not differ, it costs 12 % more"
    )


def test_the_outermost_percentile_that_differs_speaks_for_the_others():
    rows = [row("TTFT p99 (s)", 1.0, -0.3, 0.9), row("TTFT p50 (s)", 0.3, -0.15, 0.03)]
    told = verdict(NAMES, rows, 0, (True, True))
    assert told == "b is better than a on TTFT p50 by 50 % (95 % interval 40 to 60 %)"


def test_what_differs_by_chance_only_does_not_differ():
    rows = [row("TTFT p99 (s)", 1.0, -0.3, 0.9), row("cost ($)", 5.0, 0.0, None)]
    told = verdict(NAMES, rows, 0, (True, True))
    assert told == "b does not differ from a by more than chance, it costs the same"


def test_times_of_who_does_not_keep_up_are_not_compared():
    told = verdict(NAMES, ROWS, 0, (False, True))
    assert told.startswith("b keeps up with this traffic and a does not, so times are not compared")
    assert "TTFT" not in told
    assert "points" in told
    assert verdict(NAMES, ROWS, 0, (False, False)).startswith("neither keeps up")


def test_of_one_run_without_parts_nothing_is_claimed():
    rows = [row("TTFT p99 (s)", 1.0, -0.3, None)]
    assert "does not differ from a by more than chance" in verdict(NAMES, rows, 0, (True, True))
