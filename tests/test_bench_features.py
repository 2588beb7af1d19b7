"""What is measured beside what, and that requests differ in nothing but their switch."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the benchmark measures with the engine's shapes")
sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))  # scripts, not a package

from jsonschema import Draft202012Validator

import features
from client import Load, Target, Timing
from features import FEATURES, SCHEMA, Case, case_row, cases, count_of, small_cache_bytes
from floor import SMOLLM2_135M
from rounds import Cell, Pair, Run
from servers import Usage

CELLS = [Cell(128, 16), Cell(128, 32)]


def test_quick_needs_one_server_and_the_full_run_switches_the_cache_too() -> None:
    quick = cases(True, CELLS[:1])
    assert {case.server for case in quick} == {features.DEFAULT}
    assert features.launches(True, "bf16", CELLS).keys() == {features.DEFAULT}
    full = cases(False, CELLS)
    assert {case.server for case in full} == features.launches(False, "bf16", CELLS).keys()
    assert len({case.name for case in full}) == len(full)


def test_only_plain_sampling_has_a_target() -> None:
    assert {f.name: f.target for f in FEATURES if f.target} == {"plain sampling": 0.95}


def test_a_feature_changes_its_fields_and_leaves_the_length_as_it_is() -> None:
    plain = Target("http://x", "m", 128, 128).body("text")
    for feature in FEATURES:
        body = Target("http://x", "m", 128, 128, feature.asks).body("text")
        assert {key: body[key] for key in plain if key != "temperature"} == {
            key: value for key, value in plain.items() if key != "temperature"
        }


def test_the_schema_is_valid_and_its_shortest_answer_is_longer_than_the_output() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    shortest = '{"name":"abcd","count":1,"kind":"node"}'
    assert SCHEMA["minItems"] * len(shortest) / 16 > features.OUTPUT_TOKENS  # bytes a token: < 16


def test_the_small_cache_cannot_hold_everybody_but_holds_one() -> None:
    cell = CELLS[0]
    one = (cell.prompt_tokens + features.OUTPUT_TOKENS) * SMOLLM2_135M.kv_bytes_per_token
    assert 2 * one < small_cache_bytes(cell) < cell.concurrency * one


def test_a_counter_is_summed_over_its_labels_and_0_where_it_is_not() -> None:
    said = '# HELP x\nx_total 1.0\nx_totals 7\nx_total{a="b"} 2.0\n'
    assert count_of("x_total", said) == 3
    assert count_of("y_total", said) == 0


def test_a_row_takes_its_own_pairs_only() -> None:
    usage = Usage(1.0, 0.9, 0.0)

    def run(tokens_per_s: float) -> Run:
        return Run(Load([Timing(0.1, 0.01, 128)], 128 / tokens_per_s, 0.0), usage)

    mine, other = (Case(CELLS[0], features.DEFAULT, feature) for feature in FEATURES[:2])
    pairs = [
        Pair(CELLS[0], run(96), run(100), mine.name),
        Pair(CELLS[0], run(1), run(2), other.name),
    ]
    row = case_row(mine, pairs)
    assert (row.case, row.target, row.ok) == ("c16 plain sampling", 0.95, True)
    assert row.ratio == pytest.approx(0.96)
