"""What architectures mean in bytes and FLOPs: known values, and laws that hold for every model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.catalog.models import model, models
from ridgeline.errors import CatalogError
from ridgeline.quantity import given as quantity
from ridgeline.quantity import overriding, set_to

NAMES = [one.id for one in models()]
TEXT = [one.id for one in models() if one.data.get("type", "decoder") == "decoder"]


def tokens(value):
    return quantity(1, "tokens", name="context_tokens").but(value=value)


# Caches of every row.


@pytest.mark.parametrize("name", NAMES)
def test_the_cache_of_a_token_is_what_the_row_was_published_with(name):
    one = model(name)
    said = one.data["kv_cache"]
    assert one.kv_bytes_per_token("bf16").value == said["bytes_per_token_bf16"]
    assert one.fixed_bytes_per_sequence("bf16").value == said["fixed_bytes_per_sequence"]


@pytest.mark.parametrize(
    ("name", "per_token"),
    [
        ("deepseek-v3", 70_272),  # MLA: 61 x (512 + 64) x 2 B, whatever the heads
        ("llama-3.1-70b", 327_680),
        ("llama-3.1-8b", 131_072),
        ("qwen3-32b", 262_144),  # head_dim 128, not 5120/64
        ("kimi-k2.5", 70_272),
    ],
)
def test_known_caches(name, per_token):
    assert model(name).kv_bytes_per_token("bf16").value == per_token
    assert model(name).kv_bytes_per_token("fp8").value == per_token / 2


def test_head_dim_is_not_hidden_over_heads():
    one = model("qwen3-32b")
    assert one.head_dim.value == 128
    assert one.hidden.value / one.heads.value == 80


def test_sliding_layers_are_capped_at_their_window_and_not_dropped():
    one = model("mistral-7b-v0.1")
    assert one.kv_bytes_per_token().value == 0
    assert one.cache_bytes(tokens(1000)).value == 1000 * 131_072
    assert one.cache_bytes(tokens(4096)).value == 4096 * 131_072
    assert one.cache_bytes(tokens(32_768)).value == 4096 * 131_072


@pytest.mark.parametrize(
    ("name", "window", "capped"),
    [
        ("gpt-oss-120b", 128, 18),
        ("gemma-3-27b", 1024, 52),
        ("gemma-2-9b", 4096, 21),
        ("llama-4-scout", 8192, 36),
    ],
)
def test_a_mix_grows_in_full_layers_and_is_capped_in_the_others(name, window, capped):
    one = model(name)
    width = 2 * one.kv_heads.value * one.head_dim.value * 2
    full = one.layers.value - capped
    short, far = window / 2, 100_000
    assert one.cache_bytes(tokens(short)).value == width * one.layers.value * short
    assert one.cache_bytes(tokens(far)).value == width * (full * far + capped * window)


def test_the_state_of_linear_attention_is_counted_and_does_not_grow():
    one = model("qwen3-next-80b-a3b")
    state, conv = 36 * 32 * 128 * 128 * 4, 36 * 8192 * 3 * 2
    assert one.fixed_bytes_per_sequence().value == state + conv
    assert one.cache_bytes(tokens(1)).value == state + conv + 24_576
    assert one.cache_bytes(tokens(1000)).value == state + conv + 1000 * 24_576


def test_states_keep_their_type_when_the_cache_is_narrower():
    one = model("kimi-k3")
    assert one.fixed_bytes_per_sequence("fp8").value == one.fixed_bytes_per_sequence("bf16").value
    assert one.kv_bytes_per_token("fp8").value == one.kv_bytes_per_token("bf16").value / 2


def test_a_pooled_cache_shrinks_with_its_ratio_and_keeps_a_window():
    one = model("deepseek-v4-flash")
    assert one.kv_bytes_per_token().value == 21 * 512 * 2 / 4 + 20 * 512 * 2 / 128
    assert one.fixed_bytes_per_sequence().value == 43 * 128 * 512 * 2
    assert one.index_bytes_per_token().value == 21 * 128 / 4


def test_the_keys_of_an_indexer_come_on_top():
    one = model("glm-5")
    assert one.kv_bytes_per_token().value == 89_856
    assert one.index_bytes_per_token().value == 78 * 128
    assert one.cache_bytes(tokens(10)).value == 10 * (89_856 + 78 * 128)
    with pytest.raises(CatalogError, match="no sparse attention"):
        model("deepseek-v3").index_bytes_per_token()


# Ranks.


def test_kv_heads_are_replicated_where_there_are_more_ranks_than_heads():
    one = model("llama-3.1-70b")
    per_rank = [one.kv_bytes_per_token_per_rank("bf16", ranks).value for ranks in (1, 4, 8, 16, 64)]
    assert per_rank == [327_680, 81_920, 40_960, 40_960, 40_960]


def test_a_latent_is_on_every_rank():
    one = model("deepseek-v3")
    assert one.kv_bytes_per_token_per_rank("bf16", 8).value == 70_272
    assert "one vector serves all heads" in one.kv_bytes_per_token_per_rank("bf16", 8).note


def test_stages_split_layers():
    assert model("llama-3.1-70b").kv_bytes_per_token_per_rank("bf16", 8, 4).value == 10_240
    assert model("llama-3.1-405b").kv_bytes_per_token_per_rank("bf16", 8, 4).value == 32 * 512
    assert model("deepseek-v3").kv_bytes_per_token_per_rank("bf16", 8, 2).value == 31 * 576 * 2


@given(
    name=st.sampled_from(TEXT),
    ranks=st.sampled_from([1, 2, 4, 8, 16, 32]),
    context=st.integers(1, 1_000_000),
    dtype=st.sampled_from(["bf16", "fp8"]),
)
@settings(deadline=None)
def test_ranks_together_never_keep_less_than_the_whole(name, ranks, context, dtype):
    one = model(name)
    whole = one.cache_bytes(tokens(context), dtype).value
    rank = one.cache_bytes_per_rank(tokens(context), dtype, ranks).value
    assert rank <= whole * (1 + 1e-12)
    assert rank * ranks >= whole * (1 - 1e-12)
    fixed = one.fixed_bytes_per_sequence(dtype).value
    assert one.fixed_bytes_per_sequence_per_rank(dtype, ranks).value * ranks >= fixed * (1 - 1e-12)


@given(name=st.sampled_from(TEXT), low=st.integers(1, 300_000), more=st.integers(1, 300_000))
@settings(deadline=None)
def test_a_longer_context_never_costs_less(name, low, more):
    one = model(name)
    for amount in (one.cache_bytes, one.prefill_flop, one.decode_flop_per_token):
        assert amount(tokens(low)).value <= amount(tokens(low + more)).value


@pytest.mark.parametrize("name", TEXT)
def test_a_sweep_gives_what_its_points_give(name):
    one, points = model(name), np.array([1.0, 127.0, 5000.0, 200_000.0])
    for amount in (one.cache_bytes, one.prefill_flop, one.decode_flop_per_token):
        swept = amount(tokens(points)).value
        assert swept == pytest.approx([amount(tokens(point)).value for point in points])
    ranks = one.cache_bytes_per_rank(
        tokens(1000), "bf16", quantity(1).but(value=np.array([1.0, 8]))
    )
    assert np.broadcast_to(ranks.value, 2) == pytest.approx(
        [one.cache_bytes_per_rank(tokens(1000), "bf16", ranks).value for ranks in (1, 8)]
    )


def test_a_bare_number_is_a_number_of_tokens():
    assert model("qwen3-8b").cache_bytes(8192).value == 8192 * 147_456


# Weights.


def test_known_weights():
    assert model("llama-3.1-70b").weights_bytes("bf16").to("GiB") == pytest.approx(131.4, abs=0.05)
    assert model("llama-2-7b").weights_bytes("fp16").to("GB") == pytest.approx(13.5, abs=0.05)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("gpt-oss-120b", 65.25),  # mxfp4 experts, bf16 rest: the size of the checkpoint
        ("gpt-oss-20b", 13.76),
        ("kimi-k3", 1560),
        ("kimi-k2.5", 594),
        ("deepseek-v3", 672.9),  # fp8, embeddings and head bf16, without the MTP module
        ("llama-3.1-8b", 16.06),
    ],
)
def test_weights_as_shipped_mix_their_types(name, gigabytes):
    assert model(name).weights_bytes("native").to("GB") == pytest.approx(gigabytes, rel=0.005)


@pytest.mark.parametrize("name", NAMES)
def test_shared_and_routed_parameters_add_up(name):
    one = model(name)
    assert one.dense_params.value + one.routed_params.value == one.params.value
    assert 0 < one.dense_params.value <= one.params.value
    if one.is_moe:
        active = one.dense_params.value + one.top_k.value * one.moe_layers.value * (
            one.expert_params.value
        )
        table = 0 if one.data["tied_embeddings"] else one.vocab.value * one.hidden.value
        assert active - table == pytest.approx(one.active_params.value, rel=1e-2)  # but for biases


def test_experts_of_deepseek_v3():
    one = model("deepseek-v3")
    assert one.expert_params.value == 3 * 7168 * 2048
    assert (one.experts.value, one.top_k.value, one.shared_experts.value) == (256, 8, 1)
    assert one.moe_layers.value == 58


def test_experts_that_work_in_a_latent_are_smaller():
    assert model("kimi-k3").expert_params.value == 3 * 3584 * 3072


def test_a_dense_model_has_no_experts():
    with pytest.raises(CatalogError, match="is dense") as raised:
        _ = model("qwen3-8b").experts
    assert raised.value.where == "qwen3-8b.experts"


def test_a_window_is_asked_of_who_has_one():
    with pytest.raises(CatalogError, match="no layers with a window"):
        _ = model("qwen3-8b").window_tokens


# FLOPs.


def test_a_prompt_costs_two_flop_a_weight_and_half_of_full_attention():
    one, prompt = model("llama-3.1-70b"), 8192
    attention = 80 * 4 * 64 * 128 * prompt * prompt / 2
    assert one.attention_flop(prompt).value == attention
    assert one.prefill_flop(prompt).value == 2 * one.active_params.value * prompt + attention


def test_keys_and_values_of_latent_attention_differ_in_width():
    one = model("deepseek-v3")
    assert one.attention_flop(1000).value == pytest.approx(61 * 128 * 1e6 * (192 + 128))
    absorbed = 61 * 128 * 1000 * 2 * (512 + 64 + 512)
    assert one.attention_flop_per_token(1000).value == pytest.approx(absorbed)


def brute_force(one, prompt):
    """Pairs counted one by one: query t sees min(t, window) keys."""
    width = 4 * one.heads.value * one.head_dim.value
    pairs = 0
    for kind, layers in one.layer_mix.items():
        window = one.attention["window"] if kind == "sliding" else prompt
        pairs += layers * sum(min(t, window) for t in range(1, prompt + 1))
    return width * pairs


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gemma-3-4b", "mistral-7b-v0.1", "qwen3-8b"])
@pytest.mark.parametrize("prompt", [64, 2000, 6000])
def test_windows_cut_the_pairs_of_a_prompt(name, prompt):
    one = model(name)
    assert one.attention_flop(prompt).value == pytest.approx(brute_force(one, prompt), rel=0.02)


def test_chunks_see_only_themselves():
    one = model("llama-4-scout")
    width, prompt = 4 * 40 * 128, 4 * 8192
    chunked = 36 * 4 * 8192 * 8192 / 2
    assert one.attention_flop(prompt).value == width * (chunked + 12 * prompt * prompt / 2)


def test_linear_attention_costs_the_same_for_every_token():
    one = model("qwen3-next-80b-a3b")
    full = 12 * 4 * 16 * 256 * 1000 * 1000 / 2
    assert one.attention_flop(1000).value == full + 36 * 6 * 32 * 128 * 128 * 1000
    near, far = (one.attention_flop_per_token(context).value for context in (1, 1001))
    assert far - near == 12 * 4 * 16 * 256 * 1000


def test_sparse_attention_reads_what_it_picked_but_scores_everything():
    one = model("glm-5")
    near, far = (one.attention_flop_per_token(context).value for context in (10_000, 20_000))
    assert far - near == 78 * 32 * 128 * 2 * 10_000  # only the indexer sees more


def test_an_encoder_looks_both_ways_and_keeps_nothing():
    one = model("all-minilm-l6-v2")
    assert one.attention_flop(256).value == 6 * 4 * 12 * 32 * 256 * 256
    assert one.cache_bytes(256).value == 0


# What can be set.


def test_values_of_the_row_and_steps_can_be_set():
    with overriding({"kv_heads": set_to("4")}):
        assert model("llama-3.1-70b").kv_bytes_per_token().value == 163_840
    with overriding({"kv_bytes_per_token": set_to("100 kB/token")}):
        assert model("llama-3.1-70b").cache_bytes(10).value == 1_000_000
    with overriding({"layers": set_to("40")}):
        assert model("llama-3.1-70b").kv_bytes_per_token().value == 163_840


@pytest.mark.parametrize("name", TEXT)
def test_every_number_of_a_cache_leads_to_a_source(name):
    cache = model(name).cache_bytes(tokens(1000))
    leaves = [step for step in cache.walk() if not step.op and step.name]
    assert leaves
    assert all(leaf.source or leaf.name == "context_tokens" for leaf in leaves)


# Parts of a model stay consistent, whichever of them is set.

MOE = [one.id for one in models() if one.is_moe and one.data.get("params_total")]


def with_set(name, **changes):
    with overriding({key: set_to(text) for key, text in changes.items()}):
        one = model(name)
        fields = ("params", "active_params", "routed_params", "dense_params", "expert_params")
        return {field: getattr(one, field).value for field in fields}


@pytest.mark.parametrize("name", MOE)
def test_a_mixture_of_another_size_has_the_same_shape(name):
    was = with_set(name)
    for scale in (0.1, 0.9, 1.1, 10):
        now = with_set(name, params=f"{was['params'] * scale:.17g}")
        assert now == pytest.approx({key: value * scale for key, value in was.items()}, rel=1e-9)


@pytest.mark.parametrize("name", MOE)
def test_fewer_or_more_experts_change_all_parameters_and_nothing_that_tokens_share(name):
    was, experts = with_set(name), model(name).experts.value
    for share in (0.5, 1.5):
        now = with_set(name, experts=f"{experts * share:.17g}")
        assert now["params"] - was["params"] == pytest.approx(was["routed_params"] * (share - 1))
        for field in ("active_params", "dense_params", "expert_params"):
            assert now[field] == pytest.approx(was[field], rel=1e-6)


def test_more_experts_a_token_make_it_multiply_with_more():
    was, one = with_set("deepseek-v3"), model("deepseek-v3")
    now = with_set("deepseek-v3", top_k="9")
    more = one.moe_layers.value * was["expert_params"]
    assert now["active_params"] - was["active_params"] == pytest.approx(more)
    assert now["params"] == was["params"]


def test_what_is_set_itself_wins_over_what_follows():
    now = with_set("deepseek-v3", params="604B", experts="128", active_params="30B")
    assert (now["params"], now["active_params"]) == (604e9, 30e9)
    assert now["routed_params"] + now["dense_params"] == pytest.approx(604e9)


def test_a_dense_model_of_another_size_multiplies_with_as_many_more():
    was = model("llama-3.1-70b").active_params.value
    with overriding({"params": set_to("35.3B")}):
        assert model("llama-3.1-70b").active_params.value == pytest.approx(was / 2, rel=1e-2)


def test_a_mixture_cannot_use_more_than_it_has():
    with pytest.raises(CatalogError, match="more than all") as caught:
        with_set("deepseek-v3", top_k="300")
    assert caught.value.remedy


def test_parts_of_a_mixture_add_up_at_every_point_of_a_sweep():
    sizes = np.array([300e9, 604e9, 671_026_419_200, 1e12])
    with overriding({"params": lambda was: was.but(value=sizes)}):
        one = model("deepseek-v3")
        assert one.routed_params.value + one.dense_params.value == pytest.approx(sizes)
        assert (one.dense_params.value > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_rescaled_where_nothing_was_set(name):
    steps = {step.name for step in model(name).active_params.walk()}
    assert steps == {f"{name}.active_params"}
