import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.bench.compare import beyond_chance, compare, findings
from ridgeline.serving.bench.goodput import Goodput, Slo


@pytest.mark.proves("S164")
def test_a_run_whose_tokens_rise_while_goodput_falls_is_flagged(made_report):
    """Both from the same objectives on two latencies; percentiles and the share are there too."""
    before = made_report(8, good=97, tokens_per_s=500)
    after = made_report(16, good=41, tokens_per_s=620)
    assert (before.ttft.p50, before.goodput.share) == (pytest.approx(0.1), 0.97)
    assert (after.ttft.p99, after.goodput.share) == (pytest.approx(9.0), 0.41)
    found = compare(before, after)
    assert found is not None
    assert found.beyond_chance
    assert str(found) == (
        "8 requests/s -> 16 requests/s: output rose 24 % to 620 tokens/s while goodput fell from "
        "97.0 to 41.0 % (48.50 to 25.42 requests/s)"
    )


@pytest.mark.proves("S164")
@pytest.mark.parametrize(
    ("tokens_per_s", "good"),
    [(620, 97), (620, 99), (500, 41), (480, 41), (504, 41)],
    ids=["same goodput", "more goodput", "same tokens", "fewer tokens", "under 1 % more tokens"],
)
def test_a_run_that_does_not_do_both_is_not_flagged(made_report, tokens_per_s, good):
    before = made_report(8, good=97, tokens_per_s=500)
    assert compare(before, made_report(16, good=good, tokens_per_s=tokens_per_s)) is None


@pytest.mark.proves("S164")
def test_a_sweep_flags_the_level_where_it_happens_and_no_other(made_report):
    levels = [
        made_report(4, good=100, tokens_per_s=400),
        made_report(16, good=30, tokens_per_s=900),
        made_report(8, good=100, tokens_per_s=800),
        made_report(32, good=10, tokens_per_s=850),
    ]
    assert [(f.before, f.after) for f in findings(levels, 0.9)] == [
        ("8 requests/s", "16 requests/s")
    ]


def test_goodput_that_gives_way_and_still_holds_is_no_finding_of_a_sweep(made_report):
    levels = [
        made_report(4, good=100, tokens_per_s=400),
        made_report(8, good=92, tokens_per_s=800),
    ]
    assert findings(levels, 0.9) == []
    assert len(findings(levels, 0.95)) == 1


def test_a_fall_that_may_be_luck_is_flagged_and_called_so(made_report):
    before = made_report(8, good=10, total=10, tokens_per_s=500)
    found = compare(before, made_report(16, good=9, total=10, tokens_per_s=620))
    assert found is not None
    assert not found.beyond_chance
    assert "luck" in str(found)


def test_runs_held_to_different_objectives_are_not_compared(made_report):
    with pytest.raises(AssertionError, match="different objectives"):
        compare(made_report(8), made_report(16, slo=Slo(ttft_s=9.0)))


@given(st.integers(0, 50), st.integers(1, 50))
def test_equal_shares_never_differ_beyond_chance(good, missed):
    seen = Goodput(good, good + missed, 1.0)
    assert not beyond_chance(seen, seen)


def test_no_requests_prove_nothing():
    assert not beyond_chance(Goodput(0, 0, 0.0), Goodput(9, 10, 1.0))
