"""What a token keeps, by layout of attention: the ledger's numbers and the known mistakes."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import Asked, ask

topics()


def kv_cache(model: str, **given: str) -> Asked:
    return ask("kv-cache", {"model": model, **given})


def value(asked: Asked, name: str) -> float:
    return float(asked.answer.values[name].value)


@pytest.mark.proves("S175")
def test_a_70b_keeps_327_680_bytes_a_token_in_bf16():
    sets = {"layers": "80", "kv_heads": "8", "head_dim": "128"}
    asked = ask("kv-cache", {"model": "llama-3.1-70b", "kv_dtype": "bf16"}, sets)
    assert value(asked, "kv_bytes_per_token") == 327_680
    assert value(asked, "sequence_bytes") == 327_680 * 8192


@pytest.mark.proves("S180")
def test_full_heads_keep_28_latents_at_equal_depth_and_grouped_4_66_in_all_but_less_a_card():
    asked = ask(
        "attention-layouts",
        {"model": "llama-3.1-70b", "against": "deepseek-v3", "tensor_parallel": "8"},
        {"layers": "80"} | {"deepseek-v3.layers": "61"},
    )
    assert value(asked, "full_to_other") == pytest.approx(2 * 64 * 128 / 576)
    assert value(asked, "full_to_other") == pytest.approx(28, rel=0.02)
    assert value(asked, "grouped_to_other") == pytest.approx(4.66, rel=0.01)
    assert value(asked, "full_to_other_model") == pytest.approx(37, rel=0.01)
    assert value(asked, "context_ratio") == pytest.approx(4.66, rel=0.01)
    # Under TP8 a card keeps 41 kB of the grouped cache and all 70 kB of the latent one.
    rows = {row["layout"]: row["on each rank"].value for row in asked.answer.table}
    assert rows["grouped (GQA)"] == 40_960
    assert rows["DeepSeek-V3 as it is"] == 70_272
    assert value(asked, "grouped_to_other_per_rank") < 1


def test_a_head_wider_than_hidden_over_heads_is_counted_as_it_is():
    # Qwen3-30B-A3B: hidden 2048, 32 heads of 128, so hidden / heads = 64 would halve the cache.
    asked = kv_cache("qwen3-30b-a3b", tensor_parallel="4")
    assert value(asked, "kv_bytes_per_token") == 2 * 48 * 4 * 128 * 2
    assert any("not hidden / heads = 64" in note for note in asked.answer.notes)


def test_a_latent_cache_is_70_272_bytes_a_token_and_whole_on_every_rank():
    asked = kv_cache("deepseek-v3", context_tokens="1 token", tensor_parallel="8")
    assert value(asked, "kv_bytes_per_token") == 70_272
    assert value(asked, "rank_bytes") == 70_272
    assert value(asked, "replication") == 8


@pytest.mark.parametrize(("ranks", "times"), [("4", 1), ("8", 1), ("16", 2), ("64", 8)])
def test_kv_heads_are_replicated_past_one_a_rank(ranks: str, times: int):
    assert value(kv_cache("llama-3.1-70b", tensor_parallel=ranks), "replication") == times


def test_sliding_windows_are_capped_and_not_dropped():
    # Mistral 7B v0.1 slides in every layer: nothing grows past the window, yet it is not free.
    short, long = (kv_cache("mistral-7b-v0.1", context_tokens=n) for n in ("2k", "32k"))
    assert value(short, "sequence_bytes") == 131_072 * 2048
    assert value(long, "sequence_bytes") == 131_072 * 4096
    # Gemma 3 27B: 10 layers grow, 52 keep 1,024 tokens.
    gemma = kv_cache("gemma-3-27b", context_tokens="8k")
    layer = 2 * 16 * 128 * 2
    assert value(gemma, "sequence_bytes") == layer * (10 * 8192 + 52 * 1024)


def test_the_state_of_a_hybrid_is_counted_and_does_not_grow():
    short, long = (kv_cache("qwen3-next-80b-a3b", context_tokens=n) for n in ("1k", "64k"))
    fixed = value(short, "fixed_bytes")
    assert fixed == value(long, "fixed_bytes") == pytest.approx(77_266_944)
    assert value(short, "sequence_bytes") == pytest.approx(fixed + 24_576 * 1024)
    # Only one layer in four grows, so the growing part is a quarter of a full cache.
    assert value(long, "kv_bytes_per_token") == 2 * 12 * 2 * 256 * 2


@pytest.mark.parametrize(
    "model",
    ["llama-3.1-70b", "gemma-3-27b", "qwen3-next-80b-a3b", "kimi-k3", "glm-5", "deepseek-v4-pro"],
)
def test_the_parts_of_the_table_are_the_whole_sequence(model: str):
    asked = kv_cache(model, context_tokens="128k")
    parts = sum(row["bytes"].value for row in asked.answer.table)
    assert parts == pytest.approx(value(asked, "sequence_bytes"))
    windows = [row["bytes"].value for row in asked.answer.table if "last" in str(row["keep"])]
    assert windows == [pytest.approx(value(asked, "fixed_bytes"))] * len(windows)


def test_an_encoder_keeps_no_cache_and_is_refused():
    with pytest.raises(SpecError, match="keeps no cache") as error:
        kv_cache("all-minilm-l6-v2", tensor_parallel="1")
    assert error.value.where == "model"


def test_a_model_whose_cache_never_grows_is_no_comparison():
    with pytest.raises(SpecError, match="keeps every token") as error:
        ask("attention-layouts", {"against": "mistral-7b-v0.1"})
    assert error.value.where == "against"
