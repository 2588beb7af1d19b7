"""A mixture against a dense model."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


@pytest.mark.proves("S090")
def test_235b_with_22b_active_takes_3_33x_the_memory_and_0_31x_the_compute_of_70b():
    asked = ask(
        "moe-or-dense",
        {"model": "qwen3-235b-a22b", "dense": "llama-3.1-70b"},
        {
            "qwen3-235b-a22b.params": "235B",
            "qwen3-235b-a22b.active_params": "22B",
            "llama-3.1-70b.params": "70.6B",
            "llama-3.1-70b.active_params": "70.6B",
        },
    )
    values = asked.answer.values
    assert values["memory_ratio"].value == pytest.approx(3.33, rel=0.01)
    assert values["compute_ratio"].value == pytest.approx(0.31, rel=0.01)
    for name in ("serving_gpus", "dense_serving_gpus", "training_gpus", "dense_training_gpus"):
        assert values[name].value > 0
    assert values["serving_gpus"].value > values["dense_serving_gpus"].value
    assert values["training_gpus"].value < values["dense_training_gpus"].value


def test_a_replica_holds_its_weights_and_a_larger_batch_makes_more_tokens():
    for batch in (8, 64, 256):
        rows = ask("moe-or-dense", {"batch": batch}).answer.table
        for row in rows:
            assert row["a replica"].value * 85.52e9 * 0.9 > row["weights"].value
    small, large = (
        ask("moe-or-dense", {"batch": batch}).answer.table[0]["makes"].value for batch in (8, 256)
    )
    assert large > small


def test_a_replica_is_a_split_that_engines_have_and_its_rate_is_that_of_its_reads():
    row = ask("moe-or-dense", {"batch": 64, "context_tokens": "4k"}).answer.table[1]
    assert row["a replica"].value == 4  # 141 GB and 86 GB of caches over 77 GB a card are 3
    read = 70_553_706_496 * 2 + 64 * 4096 * 327_680
    assert row["makes"].value == pytest.approx(64 / (read / (4 * 3.35e12)), rel=1e-6)
