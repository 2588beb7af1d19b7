# ruff: noqa: B008 - parameters are declared where a topic takes them
import numpy as np
import pytest

from ridgeline.errors import SpecError, UnitError
from ridgeline.topics import TOPICS, Answer, amount, topic
from ridgeline.working.lines import length, plain
from ridgeline.working.span import span
from ridgeline.working.sweep import sweep
from ridgeline.working.sweep_data import sweep_data
from ridgeline.working.sweep_text import sweep_lines


def test_a_parameter_is_swept_at_once_and_marks_where_what_binds_changes(pump):
    found = sweep(pump, "batch=1:16:1")
    assert found.is_vectorised
    assert found.points == list(range(1, 17))
    assert found.columns["total_s"].values[[0, 8, 15]] == pytest.approx([4, 4.5, 8])
    assert found.changes == {8: "computing (step_s)"}


def test_the_knee_is_where_a_flat_curve_starts_to_rise(pump):
    found = sweep(pump, "batch=1:16:1")
    assert found.points[found.knee.index] == 8
    assert "the knee is at 8 steps, where it is 4 s" in plain(sweep_lines(found))


def test_point_by_point_is_the_same(pump):
    at_once, alone = (sweep(pump, "batch=1:64", at_once=one) for one in (True, False))
    assert (at_once.is_vectorised, alone.is_vectorised) == (True, False)
    for name, column in at_once.columns.items():
        np.testing.assert_allclose(column.values, alone.columns[name].values, rtol=1e-12)
    assert at_once.binds == alone.binds
    assert at_once.changes == alone.changes


@pytest.mark.parametrize("name", ["rate_bytes_per_s", "pump-9.rate_bytes_per_s"])
def test_a_value_of_the_catalog_is_swept_by_its_name(pump, name):
    found = sweep(pump, f"{name}=1:4GB/s:1")
    assert found.columns["total_s"].values == pytest.approx([8, 4, 8 / 3, 2])


def test_an_intermediate_is_swept(pump):
    found = sweep(pump, "computing=1 s,10 s")
    assert list(found.columns["total_s"].values) == [4, 10]


def test_words_are_swept_and_the_refused_are_told(pump):
    found = sweep(pump, "mode=fast,slow,broken")
    assert list(found.columns["total_s"].values[:2]) == [4, 8]
    assert found.refused == {2: "it is broken"}
    text = plain(sweep_lines(found))
    assert "most is 8 s at slow, least 4 s at fast" in text
    assert "Refused: broken: it is broken." in text


def test_another_value_can_be_looked_at(pump):
    assert sweep(pump, "share=0.1:0.9", value="used").headline == "used"
    with pytest.raises(SpecError, match='no value "nothing"'):
        sweep(pump, "share=0.1:0.9", value="nothing")


def test_an_objective_is_kept_up_to_the_last_point_before_it_is_broken(pump):
    found = sweep(pump, "batch=1:64:1", slo="total=20s")
    assert found.points[found.slo.last] == 40
    assert "total_s is at most 20 s up to 40 steps." in plain(sweep_lines(found))
    assert sweep_data(found)["slo"] == {
        "value": "total_s",
        "most": {"value": 20, "base_unit": "s", "unit": "s", "text": "20 s"},
        "last": 39,
    }


@pytest.mark.parametrize(
    ("slo", "told"),
    [("total=1s", "at no point before one that breaks it"), ("total=1h", "at every point")],
)
def test_an_objective_that_cuts_nothing_or_all_says_so(pump, slo, told):
    assert told in plain(sweep_lines(sweep(pump, "batch=1:64:1", slo=slo)))


def test_a_trade_has_the_knee_of_the_trade(pump):
    found = sweep(pump, "size=1GB:64GB", {"batch": "20"}, value="total", versus="used")
    assert found.versus == "used"
    assert "total_s over used:" in plain(sweep_lines(found))
    assert found.knee.reason == "it is close to a straight line"


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"versus": "nothing"}, "--versus"),
        ({"slo": "total"}, "--slo"),
        ({"slo": "nothing=3s"}, "--slo"),
        ({"slo": "total=3GB"}, "--slo"),
    ],
)
def test_what_a_sweep_cannot_look_at_is_refused(pump, options, where):
    with pytest.raises((SpecError, UnitError)) as caught:
        sweep(pump, "batch=1:64:1", **options)
    assert caught.value.where == where
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("batch", "has no values"),
        ("batch=", "has no values"),
        ("nothing=1:2", 'nothing is called "nothing"'),
        ("sizes=1,2", "neither a number nor one word"),
        ("batch=1:2:3:4", "too many parts"),
        ("batch=8:1:1", "a <= b"),
        ("batch=1:8:x1", "no factor above 1"),
        ("batch=0:8:x2", "0 < a <= b"),
        ("batch=1:900:0.00001", "too many"),
        ("mode=fast,quick", "is none"),
        ("batch=5000,6000", "too large"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_with_a_remedy(pump, written, problem):
    with pytest.raises(SpecError, match=problem) as caught:
        sweep(pump, written)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "written", ["size=1s:2s", "size=1:2", "size=a:b", "rate_bytes_per_s=1GB:2GB"]
)
def test_units_that_do_not_fit_are_refused(pump, written):
    with pytest.raises(UnitError) as caught:
        sweep(pump, written)
    assert caught.value.where
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("written", "points", "geometric"),
    [
        ("1,2,8", [1, 2, 8], True),
        ("1:4:1", [1, 2, 3, 4], False),
        ("1:10:4", [1, 5, 9, 10], False),
        ("1:64:x4", [1, 4, 16, 64], True),
        ("1:50:x4", [1, 4, 16, 50], True),
        ("3:3", [3], False),
    ],
)
def test_points_are_as_written_and_end_where_said(written, points, geometric):
    assert span(written, (), whole=False) == (pytest.approx(points), geometric)


def test_a_wide_range_is_spaced_by_a_factor_and_a_narrow_one_evenly():
    wide, is_geometric = span("1:128", (), whole=False)
    narrow, is_even = span("1:4", (), whole=False)
    assert len(wide) == len(narrow) == 33
    assert (is_geometric, is_even) == (True, False)
    assert wide[1] / wide[0] == pytest.approx(wide[-1] / wide[-2])
    assert narrow[1] - narrow[0] == pytest.approx(narrow[-1] - narrow[-2])


def test_counts_stay_whole_and_come_once(pump):
    points = sweep(pump, "batch=1:16").points
    assert points == sorted({round(point) for point in points})


def test_a_topic_that_takes_no_arrays_is_asked_point_by_point():
    @topic("stubborn", subject="test")
    def stubborn(size=amount("2", "", "Size.")) -> Answer:
        """A topic with an if of its own."""
        return Answer("{size}", {"size": (size * 2 if size > 1 else size * 3).named("twice")})

    try:
        found = sweep("stubborn", "size=0.5:2:0.5")
        assert not found.is_vectorised
        assert list(found.columns["size"].values) == [1.5, 3, 3, 4]
    finally:
        del TOPICS["stubborn"]


def test_a_topic_that_gives_arrays_something_else_is_not_believed():
    @topic("sly", subject="test")
    def sly(size=amount("2", "", "Size.")) -> Answer:
        """A topic that looks at whether it is swept."""
        is_swept = getattr(size.value, "ndim", 0) > 0
        return Answer("{size}", {"size": (size * (3 if is_swept else 2)).named("twice")})

    try:
        found = sweep("sly", "size=1:4:1")
        assert not found.is_vectorised
        assert list(found.columns["size"].values) == [2, 4, 6, 8]
    finally:
        del TOPICS["sly"]


def test_an_input_that_is_required_may_be_swept_where_its_default_is_refused(pump):
    assert sweep(pump, "mode=fast,slow", {"mode": "broken"}).columns["total_s"].values[1] == 8


def test_the_data_has_every_point(pump):
    data = sweep_data(sweep(pump, "batch=1:1000"))
    assert len(data["points"]) == len(data["values"]["total_s"]["values"]) == len(data["binds"])
    assert data["values"]["total_s"]["base_unit"] == "s"
    assert data["changes"][0]["to"] == "computing (step_s)"


@pytest.mark.parametrize("written", ["batch=1:1000", "size=1GB:64GB", "mode=fast,slow,broken"])
def test_the_table_fits_80_columns(pump, written):
    assert max(length(line) for line in sweep_lines(sweep(pump, written))) <= 80
