"""All-to-alls of an MoE step: count, bytes, links."""

import numpy as np
import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

TOPIC = "moe-all-to-all"


@pytest.mark.proves("S109")
def test_116_collectives_at_20_us_set_a_floor_of_2_3_ms():
    values = ask(TOPIC, {"exchange": "20us"}).answer.values
    assert values["collectives"].value == 116
    assert values["floor_s"].to("ms") == pytest.approx(2.3, rel=0.01)


@pytest.mark.proves("S109")
def test_bytes_over_the_network_equal_a_simulation_of_tokens_that_draw_their_nodes():
    """8 nodes of 8; a token's eight experts lie on nodes drawn evenly; home costs nothing."""
    asked = ask(TOPIC, {"expert_parallel": 64, "tokens": "64"})
    rows = {row["link"]: row for row in asked.answer.table}
    random = np.random.default_rng(5)
    nodes = random.integers(0, 8, (100_000, 8))
    away = np.mean([len(set(draw) - {0}) for draw in nodes.tolist()])
    sent = 58 * 64 * away * 7168 * (1 + 2)
    assert rows["between domains"]["sent"].value == pytest.approx(sent, rel=0.01)
    inside = 58 * 64 * 8 * (1 - 1 / 8) * 7168 * 3
    assert rows["within the domain"]["sent"].value == pytest.approx(inside, rel=1e-9)
    carried = rows["between domains"]["carrying"].value
    assert carried == pytest.approx(rows["between domains"]["sent"].value / 50e9)


@pytest.mark.proves("S109")
def test_one_domain_for_all_experts_takes_the_network_out_of_the_step():
    wide = ask(TOPIC, {"accelerator": "gb200", "expert_parallel": 64}).answer.values
    narrow = ask(TOPIC, {"accelerator": "b200-sxm", "expert_parallel": 64}).answer.values
    assert wide["exchanges_s"].value == wide["one_domain_s"].value
    assert narrow["domain_gain"].value > 2
    assert narrow["one_domain_s"].value == pytest.approx(wide["one_domain_s"].value)


def test_a_dense_model_and_an_uneven_spread_are_refused():
    with pytest.raises(SpecError, match="is dense"):
        ask(TOPIC, {"model": "llama-3.1-70b"})
    with pytest.raises(SpecError, match="48 does not divide 256 experts"):
        ask(TOPIC, {"expert_parallel": 48})
