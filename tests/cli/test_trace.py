"""`ridgeline trace`."""

import json
from pathlib import Path

from click.testing import CliRunner

from ridgeline.cli import ridgeline_command
from ridgeline.errors import SpecError


def run(*args):
    return CliRunner().invoke(ridgeline_command, ["trace", *map(str, args)])


def test_the_example_is_described_as_the_guide_shows_it():
    result = run("example", "--context", 8192)
    assert result.exit_code == 0, result.output
    shown = result.output.splitlines()
    guide = Path(__file__).parents[2] / "docs/guide/traces.md"
    assert [line for line in shown if f"    {line}" not in guide.read_text().splitlines()] == []


def test_json_has_all_of_it():
    told = json.loads(run("example", "--json", "--context", 8192).output)
    assert told["requests"] == 3221
    assert told["tenants"]["assistant"] == 1961
    assert told["too_long"] == 170
    assert told["reuse"]["block_tokens"] == 128
    assert len(told["rate"]["pieces_per_s"]) == 24
    assert json.loads(run("example", "--json", "--requests", 100).output)["requests"] == 100


def test_lengths_without_times_and_blocks_are_described_too(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n10,5\n20,5\n0,1\n")
    shown = run(path).output
    assert "lengths, 2 requests, without times" in shown
    assert "note: 1 rows without prompt or output left out" in shown
    assert "prefixes" not in shown


def test_what_is_no_trace_is_an_error(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    result = run(tmp_path / "a.csv")
    assert isinstance(result.exception, SpecError)
