"""The simulator's benchmark, on a trace of its own."""

import csv

import pytest

import simulate


@pytest.fixture
def traces(tmp_path):
    """A folder with one small trace of Azure's form."""
    with (tmp_path / "small.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
        for second in range(30):
            rows.writerow([f"2026-01-01 00:00:{second:02}", 300, 40])
    return tmp_path


def test_a_case_runs_with_jumps_and_without(traces):
    case = simulate.Case("small", "small.csv", 2, 1e9)
    row = simulate.speed(case, traces, 2, None)
    assert row.unit == "requests/s"
    assert row.absolute
    assert row.ok is False, "nobody does a billion"
    assert row.ours > 0


def test_twice_the_requests_is_a_ratio():
    row = simulate.linear(50)
    assert row.ratio is not None
    assert row.target == simulate.LINEAR


def test_a_day_tells_how_many_and_how_much_memory(monkeypatch, capsys):
    monkeypatch.setattr(simulate, "DAY_REQUESTS", 100)
    simulate.a_day()
    requests, peak, per_s = map(float, capsys.readouterr().out.split())
    assert requests == 100
    assert peak > 10_000_000
    assert per_s > 0


def test_without_traces_it_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["simulate.py", "--traces", str(tmp_path / "none")])
    assert simulate.main() == 2
    assert "--traces" in capsys.readouterr().err
