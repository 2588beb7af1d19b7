"""Many variants on one base, with the ledger's inputs."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import Asked, ask

topics()

LEDGER = {"params": "70.6B", "memory_bytes": "80 GB"}


def adapters(number: str, **given: str) -> Asked:
    given = {"adapters": number, "rank": "16", "targets": "all-linear", "gpus": "8"} | given
    return ask("adapters", given, LEDGER)


def value(asked: Asked, name: str) -> float:
    return float(asked.answer.values[name].value)


@pytest.mark.proves("S088")
def test_50_rank_16_adapters_on_a_70b_save_44_times_the_memory_at_0_29_percent_each():
    asked = adapters("50")
    assert value(asked, "memory_saved") == pytest.approx(44, rel=0.01)
    assert value(asked, "memory_saved") == pytest.approx(43.6, rel=0.001)
    assert value(asked, "adapter_share") == pytest.approx(0.0029, rel=0.02)
    assert value(asked, "adapter_bytes") == pytest.approx(414e6, rel=0.01)
    # Two limits: what fits, and what one step may read besides the base.
    assert value(asked, "adapters_that_fit") > 50
    assert value(asked, "adapters_in_step") < value(asked, "adapters_a_step_allows")


@pytest.mark.proves("S172")
def test_100_copies_take_800_gpus_and_200_rank_16_adapters_are_83_gb_not_a_few():
    hundred, two_hundred = adapters("100"), adapters("200")
    assert value(hundred, "copies_gpus") == 800
    assert value(hundred, "adapters_that_fit") >= 100  # so one replica of 8 holds them all
    assert value(two_hundred, "adapters_bytes") == pytest.approx(83e9, rel=0.01)
    assert any("a few gigabytes" in note for note in two_hundred.answer.notes)
    few = adapters("200", rank="8", targets="query-value")
    assert value(few, "adapters_bytes") == pytest.approx(6.6e9, rel=0.01)
    # What mixing costs, where requests go, and which variants are exceptions.
    assert value(hundred, "mixed_step") == pytest.approx(1.07, abs=0.02)
    assert value(hundred, "adapters_per_replica") == 25
    assert value(adapters("100", busiest_share="30 %"), "busiest_fills") == pytest.approx(1.2)


def test_an_adapter_counts_every_matrix_of_the_model():
    # Rank 16 on an 8B: q and o 4096 x 4096, k and v 4096 x 1024, three of 4096 x 14336, 32 layers.
    by_hand = 16 * 32 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    asked = ask("adapters", {"model": "llama-3.1-8b", "rank": "16"})
    assert value(asked, "adapter_bytes") == 2 * by_hand == pytest.approx(83.9e6, rel=0.001)


def test_a_query_projection_is_as_wide_as_its_heads_and_not_as_the_residual_stream():
    # Qwen3-30B-A3B: hidden 2048 but 32 x 128 = 4096 wide queries; each expert has its own adapter.
    asked = ask("adapters", {"model": "qwen3-30b-a3b", "targets": "attention", "gpus": "4"})
    by_hand = 16 * 48 * (2 * (2048 + 4096) + 2 * (2048 + 512))
    assert value(asked, "adapter_bytes") == 2 * by_hand
    whole = ask("adapters", {"model": "qwen3-30b-a3b", "targets": "all-linear", "gpus": "4"})
    experts = 16 * 48 * 128 * 3 * (2048 + 768)
    assert value(whole, "adapter_bytes") == 2 * (by_hand + experts)


def test_too_many_adapters_do_not_fit_at_once_and_the_answer_says_so():
    asked = adapters("2000", replicas="1")
    assert not asked.answer.ok
    assert value(asked, "adapters_that_fit") < 2000


def test_a_base_that_does_not_fit_is_told_apart_from_too_many_adapters():
    notes = ask("adapters", {"model": "llama-3.1-405b"}).answer.notes
    assert any("do not fit, adapters or not" in note for note in notes)
    assert not any("load on demand" in note for note in notes)


def test_latent_attention_has_other_matrices_and_is_refused():
    with pytest.raises(SpecError, match="not modelled") as error:
        ask("adapters", {"model": "deepseek-v3"})
    assert error.value.where == "model"
