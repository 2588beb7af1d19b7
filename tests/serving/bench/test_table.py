import pytest

from ridgeline.serving.bench.compare import compare, findings
from ridgeline.serving.bench.knee import Verdict
from ridgeline.serving.bench.sweep import Sweep
from ridgeline.serving.bench.table import compare_text, level_text, run_text, sweep_text


def swept(levels, best: float | None, **changed) -> Sweep:
    said = {"reason": "goodput 41.0 % is under 90 %", "attainment": 0.9, "closed": False}
    said |= {"interrupted": False, "findings": tuple(findings(levels, 0.9))}
    return Sweep(levels=tuple(levels), best=best, **(said | changed))


@pytest.fixture
def three(made_report):
    return [
        made_report(4, good=100, tokens_per_s=400),
        made_report(8, good=97, tokens_per_s=800),
        made_report(16, good=41, tokens_per_s=990),
    ]


def test_a_run_is_answered_in_its_first_line(made_report):
    text = run_text(made_report(good=95, tokens_per_s=500))
    assert text.splitlines()[0] == (
        "50.0 requests/s, 500 tokens/s of output, goodput 95.0 % (47.5 requests/s)"
    )
    assert "95 of 100 within ttft 500 ms, tpot 50 ms" in text


def test_units_stand_beside_the_measures(made_report):
    lines = run_text(made_report(good=100)).splitlines()
    (ttft,) = [line for line in lines if line.startswith("  TTFT ms")]
    assert ttft.split() == ["TTFT", "ms", "100", "100", "100", "100", "100", "100"]
    assert any(line.startswith("  E2E s") for line in lines)


def test_a_closed_loop_has_no_schedule_to_lag_behind(made_report):
    assert "send lag" in run_text(made_report())
    assert "send lag" not in run_text(made_report(closed=True))


def test_few_requests_and_failures_are_told(made_report):
    text = run_text(made_report(total=20, good=20, errors={"timeout": 3}, failed=3))
    assert "20 requests are few" in text
    assert "failed: timeout 3x" in text


def test_an_interrupted_run_says_what_is_missing(made_report):
    assert "2 requests were in flight" in run_text(made_report(interrupted=True, unfinished=2))


def test_a_sweep_is_answered_in_its_first_line(three):
    lines = sweep_text(swept(three, 8.0)).splitlines()
    assert lines[0] == "8 requests/s hold: goodput 97.0 % within ttft 500 ms, tpot 50 ms"
    assert "above, at 16: goodput 41.0 % is under 90 %" in lines[2]
    assert any(line.split()[:2] == ["8", "*"] for line in lines)


def test_a_sweep_tells_the_false_success(three):
    text = sweep_text(swept(three, 8.0))
    assert "flagged: 8 requests/s -> 16 requests/s: output rose 24 % to" in text


def test_a_sweep_without_a_knee_says_why(three):
    assert sweep_text(swept(three[2:], None)).startswith("No load held: goodput 41.0 %")


def test_an_interrupted_sweep_does_not_claim_a_knee(three):
    text = sweep_text(swept(three[:2], 8.0, reason="", interrupted=True))
    assert "it may be higher" in text


@pytest.mark.parametrize("flagged", [True, False])
def test_everything_fits_80_columns(three, made_report, flagged):
    before, after = (three[1], three[2]) if flagged else (three[0], three[1])
    long = made_report(good=12345, total=20000, tokens_per_s=123456.0, errors={"http 503": 100})
    texts = [
        run_text(long),
        sweep_text(swept([*three, long], 8.0)),
        compare_text(before, after, compare(before, after)),
        level_text(long, Verdict(True, "")),
    ]
    assert max(len(line) for text in texts for line in text.splitlines()) <= 80


def test_a_comparison_is_answered_first(three):
    assert compare_text(three[1], three[2], compare(three[1], three[2])).startswith("  flagged: ")
    assert compare_text(three[0], three[0], None).startswith("Not flagged: output +0.0 tokens/s")
