"""A paused conversation's cache: the simulated break-even is the formula's."""

import pytest

from ridgeline.serving.simulate.scenarios.cache_offload import offload, turn, with_params
from ridgeline.serving.simulate.scenarios.chunked_prefill import on_nodes

#: The row's own: 70.6e9 parameters, 327,680 bytes a token, 8 H100 at half of their peak.
NODE = with_params(on_nodes("llama-3.1-70b", "h100-sxm", 8, 0.5), 70.6e9, 327_680)


@pytest.mark.proves("S071")
def test_simulated_reload_beats_recompute_above_9_2_gb_s_for_short_prompts_and_4_1_at_128k():
    short, long = offload(NODE, 256), offload(NODE, 131_072)
    assert round(short.simulated_bytes_per_s / 1e9, 1) == 9.2
    assert round(long.simulated_bytes_per_s / 1e9, 1) == 4.1  # "about" in the row
    for one in (short, long):
        assert one.simulated_bytes_per_s == pytest.approx(one.formula_bytes_per_s, rel=1e-3)


@pytest.mark.proves("S071")
@pytest.mark.parametrize("tokens", [256, 8192])
def test_the_rule_loads_above_the_break_even_and_computes_below_it(tokens):
    at = offload(NODE, tokens).formula_bytes_per_s
    above, below = turn(NODE, tokens, at * 1.01), turn(NODE, tokens, at * 0.99)
    assert above.cached_tokens == tokens
    assert below.cached_tokens < 32, "a block that was not driven out, at the most"
    loaded_s = turn(NODE, tokens, at * 1.5).ttft_s
    computed_s = turn(NODE, tokens, at * 1.5, "recompute").ttft_s
    assert loaded_s < computed_s, "the saved time"
