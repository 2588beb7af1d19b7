"""Charts of a page that stands alone."""

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.working.charts import Axis, Bar, Curve, Mark, lines, rows, stacked

HOSTILE = "<script>alert('1')</script> & \"x\""


def plain(value):
    return f"{value:g}"


def parsed(chart):
    """A chart is well-formed XML, whatever stands in it."""
    return ET.fromstring(chart)


@given(st.floats(0, 1e6), st.floats(1e-3, 1e6), st.sampled_from([1.0, 60.0, 3600.0]))
def test_ticks_are_on_the_axis_and_not_many(low, length, unit):
    axis = Axis(low, low + length, plain, unit=unit)
    ticks = axis.ticks
    assert len(ticks) <= 7
    assert all(low - length * 1e-6 <= one <= low + length * (1 + 1e-6) for one in ticks)
    assert ticks == sorted(set(ticks))


@given(st.floats(1e-6, 1e3), st.floats(1.5, 1e6))
def test_logarithmic_ticks_are_round(low, times):
    for tick in Axis(low, low * times, plain, is_log=True).ticks:
        assert f"{tick:e}"[0] in "125"
        assert low * 0.99 <= tick <= low * times * 1.01


def test_what_is_counted_has_whole_ticks():
    assert Axis(0, 1, plain, least=1.0).ticks == [0, 1]
    assert Axis(0, 7200, plain, unit=3600.0).ticks == [0, 1800, 3600, 5400, 7200]


def test_a_value_has_its_place():
    assert Axis(0, 10, plain).at(2.5) == 0.25
    assert Axis(1, 100, plain, is_log=True).at(10) == pytest.approx(0.5)
    assert Axis(0, 10, plain).at(99) == 1.0
    assert Axis(3, 3, plain).at(3) == 0.0


def test_areas_stand_upon_each_other():
    curves = [Curve("a", [0, 5], [1, 2], 0), Curve("b", [0, 5], [3, 2], 1)]
    chart = parsed(stacked("t", curves, Axis(0, 10, plain), Axis(0, 4, plain)))
    paths = [one.get("d") for one in chart.iter("path")]
    assert (
        paths[0] == "M0.0,225.0 L500.0,225.0 L500.0,150.0 L1000.0,150.0 L1000.0,300.0 L0.0,300.0Z"
    )
    assert paths[1].startswith("M0.0,0.0 L1000.0,0.0 L1000.0,150.0")


def test_a_step_holds_until_the_next_one():
    curve = Curve("a", [0, 5, 10], [0, 2, 4], 0)
    chart = lines("t", [curve], Axis(0, 10, plain), Axis(0, 4, plain), steps=True)
    (path,) = (one.get("d") for one in parsed(chart).iter("path"))
    assert path == "M0.0,300.0H500.0V150.0H1000.0V0.0"


def test_every_word_is_escaped():
    axis, curve = Axis(0, 1, plain), Curve(HOSTILE, [0, 1], [0, 1], 0)
    bars = [(HOSTILE, [Bar(0, 1, 0, HOSTILE)])]
    for chart in (
        lines(HOSTILE, [curve], axis, axis, note=HOSTILE, marks=[Mark(0.9, HOSTILE)]),
        stacked(HOSTILE, [curve], axis, axis, note=HOSTILE),
        rows(HOSTILE, bars, axis, [(HOSTILE, 0)], note=HOSTILE),
    ):
        parsed(chart)
        assert "<script" not in chart
        assert re.search(r"data-hover='[^'<>]*'", chart) or "data-hover" not in chart


def test_rows_of_one_name_have_it_once():
    bars = [("r0", [Bar(0, 1, 0, "x")]), ("r0", []), ("r1", [Bar(0.5, 1, 1, "y")])]
    chart = rows("t", bars, Axis(0, 1, plain), [])
    assert chart.count(">r0<") == chart.count(">r1<") == 1
    assert [one.get("class") for one in parsed(chart).iter("rect")] == ["c0", "c1"]
