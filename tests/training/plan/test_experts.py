"""Expert parallelism in training: the ledger's ratio, and what the node limit is worth."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


@pytest.mark.proves("S045")
def test_deepseek_v3_with_a_limit_of_four_nodes_exchanges_as_long_as_it_computes():
    values = ask(
        "expert-all-to-all",
        {
            "model": "deepseek-v3",
            "node_limit": 4,
            "dispatch_dtype": "fp8",
            "combine_dtype": "bf16",
            "link": "50 GB/s",
            "mfu": "0.4",
        },
        {"active_params": "37B", "fp8_flop_per_s": "1979 TFLOP/s"},
    ).answer.values
    assert values["ratio"].value == pytest.approx(0.99, rel=0.01)
    assert values["ratio_without_limit"].value == pytest.approx(2 * values["ratio"].value)
    assert values["exchanges_per_layer"].value == 4
    assert values["bytes_per_rank"].value == 4096 * 4 * 7168 * 3


def test_the_hottest_rank_stalls_all_and_an_even_load_stalls_nobody():
    stall = {
        load: ask("expert-all-to-all", {"hot_load": load}).answer.values["hot_stall_s"].value
        for load in ("1", "1.2", "1.4")
    }
    assert stall["1"] == 0
    assert stall["1.4"] == pytest.approx(2 * stall["1.2"])


def test_traffic_behind_arithmetic_is_seen_only_where_it_outlasts_it():
    half = ask("expert-all-to-all", {"overlap": "0.5"}).answer.values
    expected = half["exchange_s"].value - 0.5 * half["layer_s"].value
    assert half["exposed_s"].value == pytest.approx(expected)
    assert ask("expert-all-to-all", {"overlap": "1"}).answer.values["exposed_s"].value == 0


def test_dense_models_are_refused():
    with pytest.raises(SpecError, match="no experts") as caught:
        ask("expert-all-to-all", {"model": "llama-3.1-8b"})
    assert caught.value.where == "model"
