"""A function's start: which stage decides."""

import pytest

from ridgeline.serving.simulate.scenarios.function_start import CHAINS, start


@pytest.mark.proves("S113")
def test_it_goes_from_118_s_to_0_8_s_only_if_weights_sit_in_host_memory():
    found = {name: start(stages, starts_per_s=0.5) for name, stages in CHAINS.items()}
    assert found["as it comes"].first_token_s == pytest.approx(118, rel=0.01)
    assert found["weights on a local disk"].first_token_s > 2.0
    assert found["weights in host memory"].first_token_s == pytest.approx(0.8, abs=0.05)
    for one in found.values():
        assert one.first_token_s == pytest.approx(one.chain_s, abs=0.06), "the chain, and a look"
    assert found["as it comes"].pool == 59
    assert found["weights in host memory"].pool == 1
