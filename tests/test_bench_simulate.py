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


@pytest.fixture
def loaded(traces):
    """A small case with a target that nobody reaches."""
    case = simulate.Case("small", "small.csv", 2, 1e9)
    return simulate.load(case, traces, None)


def test_a_case_runs_with_jumps_and_without(loaded):
    row = simulate.speed(loaded, 2)
    assert row.unit == "requests/s"
    assert row.absolute
    assert row.ok is False, "nobody does a billion"
    assert row.ours > 0


def test_a_compiled_copy_runs_the_same_case_in_a_process_of_its_own(
    loaded, traces, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(simulate, "CASES", (loaded.case,))
    seen = []

    def child(*arguments, path):
        seen.append(path)
        simulate.one(arguments[1])
        return capsys.readouterr().out

    monkeypatch.setattr(simulate, "_child", child)
    row = simulate.compiled_speed(loaded, tmp_path, traces, 1)
    assert seen == [tmp_path]
    assert "compiled" in row.case
    assert row.ratio > 0


def test_a_peer_is_timed_on_the_same_requests(loaded, monkeypatch):
    given = []

    def half_a_second(case):
        given.append(case)
        return 0.5

    monkeypatch.setitem(simulate.PEERS, "vidur", half_a_second)
    monkeypatch.setattr(simulate, "SLOW_PEER_REQUESTS", 20)
    row = simulate.beside(loaded, "vidur", 1)
    assert row.peer == 40.0
    assert len(given[0].requests) == 20
    assert given[0].replicas == 2


def test_a_request_takes_so_long_among_more_replicas():
    rows = simulate.fleets(5)
    assert [row.case.split()[3] for row in rows] == ["1", "4", "16", "64"]
    assert rows[1].ratio == 1.0
    assert rows[-1].target == simulate.MORE_REPLICAS


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
