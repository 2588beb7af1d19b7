"""Attention in FLOPs: closed forms against pairs counted one by one."""

import pytest

from ridgeline.physics.attention import (
    attention_flop_per_token,
    chunked_attention_flop,
    index_flop_per_token,
    linear_flop_per_token,
    window_attention_flop,
)
from ridgeline.physics.size import causal_attention_flop


@pytest.mark.parametrize("window", [16, 256, 5000])
@pytest.mark.parametrize("prompt", [8, 256, 3000])
def test_a_window_has_as_many_pairs_as_are_counted(prompt, window):
    pairs = sum(min(t, window) for t in range(1, prompt + 1))
    # The closed form is the integral: half a pair a token less.
    assert window_attention_flop(1, 1, 1, prompt, window) == pytest.approx(
        4 * pairs, abs=4 * prompt / 2 + 1
    )


@pytest.mark.parametrize("prompt", [1.0, 100.0, 4096.0])
def test_a_prompt_within_its_window_or_chunk_is_causal(prompt):
    causal = causal_attention_flop(3, 4, 64, prompt)
    assert window_attention_flop(3, 4, 64, prompt, 4096.0) == causal
    assert chunked_attention_flop(3, 4, 64, prompt, 4096.0) == causal


def test_chunks_add_up():
    one = causal_attention_flop(1, 1, 1, 1000)
    assert chunked_attention_flop(1, 1, 1, 7000, 1000) == 7 * one


def test_a_step_costs_what_the_prompt_grows_by():
    grown = causal_attention_flop(2, 4, 64, 1001) - causal_attention_flop(2, 4, 64, 1000)
    assert attention_flop_per_token(2, 4, 64, 1000.5) == pytest.approx(grown)


def test_linear_attention_touches_its_state_three_times():
    assert linear_flop_per_token(1, 2, 8, 16) == 3 * 2 * (2 * 8 * 16)


def test_an_indexer_scores_pooled_keys():
    assert index_flop_per_token(1, 1, 1, 4000, 4) == 2 * 1000
