"""Time to first token: the budget of tokens, its stages, its queue."""

import numpy as np
import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

#: The row counts 2N with N = 70.6e9, and neither queue nor host.
BARE = {"target": "200ms", "mfu": "0.36", "host": "0s", "requests_per_s": "0requests/s"}
LEDGER = {"active_params": "70.6B"}


@pytest.mark.proves("S069")
def test_200_ms_at_36_percent_mfu_allow_4034_tokens_of_a_70b_on_8_h100():
    sets = LEDGER | {"bf16_flop_per_s": "989TFLOP/s"}
    assert ask("ttft-budget", BARE, sets).answer.values["token_budget"].value == 4034


@pytest.mark.proves("S069")
def test_the_budget_with_attention_is_the_prompt_whose_whole_prefill_fits():
    values = ask("ttft-budget", BARE, LEDGER).answer.values
    s = values["token_budget_with_attention"].value
    room = 0.2 * 8 * 989.4e12 * 0.36

    def work(tokens):
        return 2 * 70.6e9 * tokens + 2 * tokens**2 * 64 * 128 * 80

    assert work(s) <= room < work(s + 1)


@pytest.mark.proves("S069")
def test_stages_add_up_and_long_prompts_are_told_what_they_need():
    given = {"target": "500ms", "host": "20ms", "prompts": "1k,16k"}
    asked = ask("ttft-budget", given, LEDGER)
    for row in asked.answer.table:
        parts = row["host"].value + row["queue"].value + row["prefill"].value
        assert row["first token"].value == pytest.approx(parts)
    short, long = asked.answer.table
    assert short["cached share needed"].value == 0
    assert short["or devices"].value == 1
    rest = long["prefill"].value * (1 - long["cached share needed"].value)
    assert 0.02 + long["queue"].value + rest == pytest.approx(0.5)


@pytest.mark.proves("S069")
def test_the_queue_equals_a_simulation_of_random_prompts_of_one_length():
    values = ask("ttft-budget", {"requests_per_s": "15requests/s"}).answer.values
    rows = ask("ttft-budget", {"prompts": "1k"}).answer.table
    service = rows[0]["prefill"].value
    random = np.random.default_rng(3)
    wait = total = 0.0
    for gap in random.exponential(1 / 15, 300_000):
        wait = max(0.0, wait + service - gap)
        total += wait
    assert values["queue_s"].value == pytest.approx(total / 300_000, rel=0.02)


def test_a_queue_without_end_leaves_no_budget():
    answer = ask("ttft-budget", {"requests_per_s": "1000requests/s"}).answer
    assert answer.values["token_budget"].value == 0
    assert not answer.ok
