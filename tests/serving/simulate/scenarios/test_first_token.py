"""200 ms to the first token: the budget of its stages, and the door that keeps it."""

import pytest

from ridgeline.serving.simulate.scenarios.chunked_prefill import on_nodes
from ridgeline.serving.simulate.scenarios.first_token import budget, kept, linear

#: The row's own: 2N a token of 70.6e9 parameters, 8 H100 at 36 % of their peak.
NODE = linear(on_nodes("llama-3.1-70b", "h100-sxm", 8, 0.36), 70.6e9)


@pytest.mark.proves("S142")
def test_55_ms_of_overheads_leave_about_2900_tokens():
    split = budget(NODE)
    assert split.overhead_s == pytest.approx(0.055)
    assert split.limit_tokens == pytest.approx(2925, abs=5)


@pytest.mark.proves("S142")
@pytest.mark.parametrize("seed", [0, 1])
def test_admission_keeps_p99_under_200_ms_at_8_requests_a_second(seed):
    one = kept(NODE, 8.0, seed=seed)
    assert one.p99_s < 0.2 < one.p99_without_s
    assert one.refused < 0.02, "few are refused for it"


@pytest.mark.proves("S142")
def test_the_promise_costs_utilization():
    """More load is more refused, and the node is never full."""
    light, heavy = kept(NODE, 2.0, count=2000), kept(NODE, 16.0, count=2000)
    assert light.refused < 0.01 < heavy.refused
    assert light.busy < heavy.busy < 0.6
    assert heavy.p99_s < 0.2
