"""A 20k prompt stalls whoever streams, unless it comes in chunks."""

import pytest

from ridgeline.serving.simulate.scenarios.chunked_prefill import chunked_prefill, on_nodes

WHOLE, CHUNKS = 32_768, (512, 2048, 8192)
#: The row's own: 70B on 8 H100 at half of their peak.
NODE = on_nodes("llama-3.1-70b", "h100-sxm", 8, 0.5)


@pytest.mark.proves("S178")
def test_whole_it_stalls_085_s_and_in_chunks_no_gap_exceeds_the_budgets_step():
    whole, *chunks = chunked_prefill(NODE, 20_000, (WHOLE, *CHUNKS))
    assert whole.longest_gap_s == pytest.approx(0.85, rel=0.05)
    for one in chunks:
        assert one.longest_gap_s <= one.budget_step_s
        assert one.longest_gap_s < whole.longest_gap_s / 2


def test_the_trade_is_between_the_prompt_and_the_streams():
    """Smaller chunks: shorter gaps for the streams, a later first token for the prompt."""
    found = chunked_prefill(NODE, 20_000, CHUNKS)
    gaps = [one.longest_gap_s for one in found]
    firsts = [one.prompt_ttft_s for one in found]
    assert gaps == sorted(gaps)
    assert firsts == sorted(firsts, reverse=True)
