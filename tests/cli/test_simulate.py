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
