"""Parameters are counted from the architecture, to the last one where the weights are listed."""

import pytest

from ridgeline.catalog.counting import count
from ridgeline.catalog.rows import rows

MODELS = rows("models")

PLAIN = {
    "layers": 2, "hidden": 8, "heads": 2, "kv_heads": 1, "head_dim": 4, "intermediate": 16,
    "vocab": 10, "tied_embeddings": False, "attention": {"kind": "mqa"},
}  # fmt: skip


def total(**changes):
    return count(PLAIN | changes).total


@pytest.mark.parametrize(
    "name", [name for name, row in MODELS.items() if "index total" in row["published"]["basis"]]
)
def test_a_model_whose_weights_are_listed_is_counted_exactly(name):
    assert count(MODELS[name]).total == MODELS[name]["published"]["total"]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_counted_within_two_percent_or_its_rounding(name):
    published = MODELS[name]["published"]
    allowed = max(0.02 * published["total"], published.get("rounding", 0))
    assert abs(count(MODELS[name]).total - published["total"]) <= allowed


@pytest.mark.parametrize("name", MODELS)
def test_the_row_holds_what_is_counted(name):
    assert count(MODELS[name]).total == MODELS[name]["params_total"]
    assert count(MODELS[name]).active == MODELS[name]["params_active"]


def test_a_plain_model_by_hand():
    attention = 8 * 8 + 2 * 8 * 4 + 8 * 8
    feed_forward = 3 * 8 * 16
    norms = 5 * 8
    assert total() == 2 * 10 * 8 + 2 * (attention + feed_forward) + norms


def test_there_are_two_norms_a_layer_and_one_at_the_end():
    assert count(PLAIN).parts["norms"] == (2 * 2 + 1) * 8
    assert total(norms_per_layer=4) - total() == 2 * 2 * 8


def test_tied_embeddings_are_one_table_and_are_multiplied_with():
    assert total() - total(tied_embeddings=True) == 10 * 8
    assert count(PLAIN).active == count(PLAIN).total - 10 * 8
    tied = count(PLAIN | {"tied_embeddings": True})
    assert tied.active == tied.total


def test_biases_and_norms_of_queries_and_keys_are_counted():
    def attention(**more):
        return total(attention={"kind": "mqa", **more}) - total()

    assert attention(qkv_bias=True) == 2 * (8 + 4 + 4)
    assert attention(o_bias=True) == 2 * 8
    assert attention(qk_norm="per_head") == 2 * 2 * 4
    assert attention(qk_norm="full") == 2 * (8 + 4)
    assert attention(sinks=True) == 2 * 2
    assert attention(output_gate=True) == 2 * 8 * 8


def test_experts_shared_experts_and_dense_layers_are_counted_apart():
    moe = {"experts": 4, "top_k": 1, "shared_experts": 1, "expert_intermediate": 6, "layers": 1}
    found = count(PLAIN | {"moe": moe})
    expert = 3 * 8 * 6
    assert found.parts["routed experts"] == 4 * expert
    assert found.parts["shared experts"] == expert
    assert found.parts["routers"] == 4 * 8
    assert found.parts["dense layers"] == 3 * 8 * 16
    assert found.total - found.active == 10 * 8 + 3 * expert
    biased = count(PLAIN | {"moe": moe | {"router_bias": True}})
    assert biased.total - found.total == 4
