"""`ridgeline simulate serving`."""

import gzip
import json

import pytest
from click.testing import CliRunner

from ridgeline.cli import ridgeline_command
from ridgeline.errors import RidgelineError

SPEC = """
models:
  - name: chat
    engine: {kind: fake}
    slo: {ttft: 500ms, tpot: 20ms}
  - name: other
    engine: {kind: fake}
"""


@pytest.fixture
def files(tmp_path):
    """A spec and a trace."""
    spec, trace = tmp_path / "p.yaml", tmp_path / "trace.jsonl.gz"
    spec.write_text(SPEC)
    with gzip.open(trace, "wt") as out:
        for number in range(40):
            row = {"timestamp": number * 100, "input_length": 600, "output_length": 20}
            out.write(json.dumps({**row, "hash_ids": [0, number + 1]}) + "\n")
    return spec, trace


def run(*args):
    return CliRunner().invoke(ridgeline_command, ["simulate", "serving", *map(str, args)])


def test_it_says_what_would_happen(files):
    spec, trace = files
    result = run(spec, "--trace", trace)
    assert result.exit_code == 0, result.output
    assert "40 requests" in result.output
    assert "100.0% of requests, 95.0% wanted" in result.output


def test_the_same_seed_is_the_same_digest_and_json_has_it(files):
    spec, trace = files
    first, second = (json.loads(run(spec, "--trace", trace, "--json").output) for _ in range(2))
    assert first["digest"] == second["digest"]
    assert first["prefix_hit_rate"] == pytest.approx(39 * 512 / (40 * 600), rel=0.01)


def test_a_missed_slo_is_a_no(files):
    spec, trace = files
    spec.write_text(SPEC.replace("tpot: 20ms", "tpot: 9ms"))
    assert run(spec, "--trace", trace).exit_code == 1


def test_events_are_written_line_by_line(files, tmp_path):
    spec, trace = files
    events = tmp_path / "events.jsonl"
    assert run(spec, "--trace", trace, "--events", events).exit_code == 0
    rows = [json.loads(line) for line in events.read_text().splitlines()]
    assert sum(row["event"] == "ended" for row in rows) == 40
    assert [row["at_ns"] for row in rows] == sorted(row["at_ns"] for row in rows)


def test_a_model_that_is_not_there_is_an_error(files):
    spec, trace = files
    result = run(spec, "--trace", trace, "--model", "nobody")
    assert isinstance(result.exception, RidgelineError)
    assert "chat, other" in str(result.exception)


def test_a_workload_is_drawn_and_runs_over_seeds_have_intervals(files):
    spec, _ = files
    told = json.loads(run(spec, "--rate", 3, "--requests", 60, "--seeds", 3, "--json").output)
    assert told["seeds"] == [0, 1, 2]
    assert told["figures"]["TTFT p50 (s)"]["half"] > 0
    assert len(set(told["digests"])) == 3
    assert "±" in run(spec, "--rate", 3, "--requests", 60, "--seeds", 3).output


def test_two_platforms_get_the_same_requests(files, tmp_path):
    spec, _ = files
    slow = tmp_path / "slow.yaml"
    slow.write_text(SPEC.replace("{kind: fake}", "{kind: fake, step: 15ms}", 1))
    args = (spec, "--rate", 3, "--requests", 60, "--seeds", 3, "--compare", slow)
    told = json.loads(run(*args, "--json").output)
    rows = {one["name"]: one for one in told["compared"]}
    gap = rows["TPOT p50 (s)"]["differences"][0]
    assert 0.005 < gap["mean"] < 0.007, "and prompts in between"
    assert rows["TPOT p50 (s)"]["apart"] == [True]
    output = run(*args).output
    assert "slow.yaml is worse than p.yaml on" in output
    assert "TPOT p99 by" in output
    slow.write_text(SPEC)
    same = json.loads(run(*args, "--json").output)
    assert not any(any(one["apart"]) for one in same["compared"])
    assert "All runs were the same, event by event" in run(*args).output


def test_values_of_a_key_are_compared(files):
    spec, _ = files
    args = (spec, "--rate", 3, "--requests", 60, "--seeds", 3)
    told = json.loads(run(*args, "--compare", "engine.step=10ms,15ms,20ms", "--json").output)
    assert told["names"] == ["10ms", "15ms", "20ms"]
    rows = {one["name"]: one for one in told["compared"]}
    values = [one["mean"] for one in rows["TPOT p50 (s)"]["values"]]
    assert values == sorted(values)
    assert len(told["verdicts"]) == 2
    assert "20ms is worse than 10ms" in told["verdicts"][1]
    one = json.loads(run(*args, "--json").output)
    assert one["digests"] == told["digests"][0], "which is what the spec has"


def test_who_was_asked_before_is_not_compared_by_another_promise(files):
    result = run(files[0], "--rate", 3, "--compare", "slo.ttft=1s,2s")
    assert "the SLO is the measure" in str(result.exception)


def test_the_fewest_replicas_are_found(files):
    spec, _ = files
    args = (spec, "--rate", 500, "--prompt", 16, "--output", 20, "--requests", 4000)
    told = json.loads(run(*args, "--find", "replicas", "--json").output)
    assert told["found"]["replicas"] == 2, "320 a second each at the very most"
    assert "2 replicas keep the SLO" in run(*args, "--find", "replicas").output


def test_a_page_is_written_and_stands_alone(files, tmp_path):
    spec, trace = files
    page = tmp_path / "page.html"
    for more in ((), ("--compare", "engine.step=10ms,15ms")):
        assert run(spec, "--trace", trace, "--html", page, *more).exit_code == 0
        text = page.read_text()
        assert text.startswith("<!doctype html>")
        assert "What bound the engines" in text
        assert text.count("<script") == 1
    assert "15ms" in text


def test_what_binds_and_the_oracle_are_told(files):
    spec, trace = files
    told = json.loads(run(spec, "--trace", trace, "--json").output)
    assert sum(told["bound"]["all"].values()) == pytest.approx(1)
    assert told["prefix_hit_rate"] == pytest.approx(told["oracle"]["unlimited"])
    output = run(spec, "--trace", trace).output
    assert "what bound the engines: " in output
    assert "one without end 83.2%" in output


def test_beyond_its_limit_no_percentile_is_printed(files):
    spec, _ = files
    args = (spec, "--rate", 400, "--prompt", 16, "--output", 20, "--requests", 5000)
    result = run(*args)
    assert result.exit_code == 1
    assert "95 % interval" in result.output
    assert "p99" not in result.output
    assert json.loads(run(*args, "--json").output)["ttft_s"]["p99"] is None


def test_ctrl_c_ends_it_cleanly(files, monkeypatch):
    def interrupted(*_args, **_named):
        raise KeyboardInterrupt

    monkeypatch.setattr("ridgeline.serving.simulate.world.simulate", interrupted)
    result = run(files[0], "--rate", 3)
    assert result.exit_code == 130
    assert "of a part of a run nothing is told" in result.stderr


def test_the_highest_rate_that_keeps_the_slo_is_found(files):
    """64 seats and 10 ms a step: 20 tokens take 0.2 s, so 320 requests a second are the most."""
    spec, _ = files
    args = (
        spec,
        "--rate",
        10,
        "--prompt",
        16,
        "--output",
        20,
        "--requests",
        3000,
        "--find",
        "rate",
    )
    told = json.loads(run(*args, "--json").output)
    assert 200 < told["found"]["kept_per_s"] < 320
    assert told["found"]["missed_per_s"] / told["found"]["kept_per_s"] < 1.021
    assert "missed at" in run(*args).output


def test_a_closed_loop_and_a_fault(files):
    spec, _ = files
    args = (spec, "--clients", 4, "--requests", 40)
    fine = json.loads(run(*args, "--json").output)
    slow = json.loads(run(*args, "--fault", "slow,at=0,factor=2,for=1000", "--json").output)
    assert slow["tpot_s"]["mean"] == pytest.approx(2 * fine["tpot_s"]["mean"], rel=0.05)
    died = json.loads(run(*args, "--fault", "dies,at=1", "--json").output)
    assert died["ends"]["broken"] == 4


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ((), "--rate or --clients"),
        (("--rate", 1, "--clients", 2), "--rate or --clients"),
        (("--rate", 1, "--prompt", "few"), "--prompt"),
        (("--rate", 1, "--fault", "boom"), "--fault"),
        (("--rate", 1, "--profile", "boom"), "--profile"),
        (("--clients", 1, "--profile", "step:9:2"), "--profile"),
        (("--rate", 1, "--fault", "slow,at=1"), "factor"),
        (("--rate", 1, "--fault", "dies,at=x"), "--fault"),
        (("--clients", 1, "--find", "rate"), "--find"),
        (("--rate", 1, "--find", "rate", "--model", "other"), "slo"),
        (("--rate", 1, "--find", "rate", "--html", "x.html"), "--html"),
        (("--rate", 1, "--html", "no/such/folder/x.html"), "--html"),
        (("--rate", 1, "--find", "rate", "--compare", "replicas.min=1,2"), "--find"),
        (("--rate", 1, "--seeds", 2, "--events", "x.jsonl"), "--events"),
        (("--rate", 1, "--compare", "replicas.min=1"), "--compare"),
        (("--rate", 1, "--compare", "a=1,2", "--compare", "b=1,2"), "one key"),
        (("--rate", 1, "--compare", "nobody.yaml"), "nobody.yaml"),
    ],
)
def test_options_that_mean_nothing_are_errors(files, args, field):
    result = run(files[0], *args)
    assert isinstance(result.exception, RidgelineError)
    assert field in str(result.exception)


def test_a_trace_has_its_own_times(files):
    spec, trace = files
    result = run(spec, "--trace", trace, "--rate", 3)
    assert isinstance(result.exception, RidgelineError)
    assert "--speed" in str(result.exception)
