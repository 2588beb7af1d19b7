"""Retrieval at a rate of queries: both readings of 200 and 60 nodes."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

TOPIC = "retrieval-fleet"
LEDGER = {"active_params": "70.6B", "bf16_flop_per_s": "989TFLOP/s"}


@pytest.mark.proves("S133")
def test_200_nodes_allow_560_prompt_tokens_and_60_need_a_hit_rate_of_70_percent():
    values = ask(TOPIC, {"nodes": 200, "small_nodes": 60, "mfu": "0.5"}, LEDGER).answer.values
    assert values["prompt_tokens_allowed"].value == 560
    assert values["hit_rate_needed"].value == pytest.approx(0.70)
    assert values["prefill_nodes"].value == 357


@pytest.mark.proves("S133")
def test_at_the_allowed_prompt_exactly_those_nodes_are_needed_and_sixty_with_the_hits():
    given = {"prompt": "560 tokens", "hit_rate": "0.7", "nodes": 200}
    values = ask(TOPIC, given, LEDGER).answer.values
    assert values["prefill_nodes"].value == 200
    assert values["nodes_with_cache"].value == 60
    assert values["hit_rate_needed_here"].value == pytest.approx(0.70, rel=0.01)


@pytest.mark.proves("S133")
def test_every_stage_has_its_latency_and_its_fleet():
    answer = ask(TOPIC, {}, LEDGER).answer
    rows = {row["stage"]: row for row in answer.table}
    assert rows["embed"]["servers"].value == 10_000 / 2000
    assert rows["search"]["servers"].value == 10_000 / 1000
    assert rows["rerank"]["servers"].value == 10_000 / 200
    total = sum(row["latency"].value for row in answer.table)
    assert answer.values["first_token_s"].value == pytest.approx(total)


def test_fp8_arithmetic_takes_half_the_nodes():
    sets = {"active_params": "70.6B", "fp8_flop_per_s": "1978TFLOP/s"}
    assert ask(TOPIC, {"dtype": "fp8"}, sets).answer.values["prefill_nodes"].value == 179
    assert any("In fp8" in note for note in ask(TOPIC).answer.notes)
    assert not any("In fp8" in note for note in ask(TOPIC, {"dtype": "fp8"}).answer.notes)


def test_a_fleet_too_small_is_a_no():
    assert not ask(TOPIC, {"nodes": 100}, LEDGER).answer.ok
    assert ask(TOPIC, {"nodes": 300}, LEDGER).answer.ok
