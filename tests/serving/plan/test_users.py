"""Users on nodes, with the ledger's inputs and with the catalog's."""

import numpy as np
import pytest

from ridgeline.errors import CatalogError, SpecError
from ridgeline.platform.plan import topics
from ridgeline.quantity import Quantity, given
from ridgeline.topics import Asked, ask
from ridgeline.units import parse_unit
from ridgeline.working.formula import bound

topics()

#: The rows count 80e9 bytes a card and 70.6e9 parameters, at 0.90.
LEDGER = {"memory_bytes": "80GB", "params": "70.6B"}


def asked(**given_values: str) -> Asked:
    return ask("users-per-node", given_values, LEDGER)


def value(answer: Asked, name: str) -> float:
    return float(answer.answer.values[name].value)


@pytest.mark.proves("S089")
def test_a_thousand_users_at_8k_need_seven_nodes_of_161_users_each_before_headroom():
    answer = asked(users="1000", context_tokens="8k", memory_share="0.9")
    assert value(answer, "users_per_node") == 161
    assert value(answer, "nodes_before_headroom") == 7
    [fit] = answer.find("users_per_copy")
    assert bound(fit) == "memory"
    assert value(answer, "users_by_bandwidth") > 161
    assert value(answer, "users_by_compute") > 161
    # Room kept free costs nodes: 0.8 x 161 = 128 users a node.
    assert value(asked(headroom="20 %"), "nodes") == 8


@pytest.mark.proves("S177")
def test_161_users_in_bf16_and_376_in_fp8_and_splitting_past_8_kv_heads_adds_none():
    assert value(asked(), "users_per_node") == 161
    fp8 = asked(dtype="fp8", kv_dtype="fp8")
    assert value(fp8, "users_by_memory") == 376
    # The cache of a user on one card stops shrinking at 8 ranks; two copies over 16 cards hold
    # more than one copy spread over all of them.
    cache = {
        ranks: value(asked(gpus=ranks, tensor_parallel=ranks), "per_user_bytes") / int(ranks)
        for ranks in ("4", "8", "16", "32")
    }
    assert cache["4"] == 2 * cache["8"]
    assert cache["8"] == cache["16"] == cache["32"]
    two_copies = value(asked(gpus="16", tensor_parallel="8"), "users_per_node")
    assert two_copies == 2 * 161
    assert two_copies > value(asked(gpus="16", tensor_parallel="16"), "users_per_node")


@pytest.mark.proves("S175")
def test_a_node_holds_161_users_with_80e9_bytes_a_card_and_176_with_what_the_driver_reports():
    assert value(asked(), "users_per_node") == 161
    assert ask("users-per-node").answer.values["users_per_node"].value == 176


def test_the_table_has_the_users_of_each_precision_and_split():
    rows = asked().answer.table
    held = {(row["weights"], row["cache"], row["split"].value): row["users"].value for row in rows}
    assert held["bf16", "bf16", 8] == 161
    assert held["fp8", "fp8", 8] == 376
    assert held["bf16", "bf16", 1] == 0  # 141 GB do not fit one card
    per_gpu = {row["split"].value: row["per GPU"].value for row in rows[-4:]}
    assert per_gpu[8] > per_gpu[16] > per_gpu[32]


def test_a_faster_rate_makes_bandwidth_bind_and_a_crawl_leaves_memory():
    quick = asked(user_tokens_per_s="100 tokens/s")
    [fit] = quick.find("users_per_copy")
    assert bound(fit) == "bandwidth"
    assert value(quick, "users_per_node") < 161
    # By hand: in 10 ms eight cards at 0.7 read 187.6 GB, of which the weights are 141.2.
    assert value(quick, "users_per_node") == (0.01 * 8 * 3.35e12 * 0.7 - 141.2e9) // 2684354560


def test_compute_binds_where_the_cache_is_small_and_users_many():
    answer = asked(context_tokens="128 tokens", user_tokens_per_s="20 tokens/s")
    [fit] = answer.find("users_per_copy")
    assert bound(fit) == "compute"


def test_weights_that_do_not_fit_hold_nobody_and_say_so():
    answer = asked(gpus="1").answer
    assert not answer.ok
    assert answer.values["users_per_node"].value == 0
    assert "nodes" not in answer.values


def test_headroom_that_leaves_nobody_is_not_called_a_node_that_holds_nobody():
    given = {"model": "llama-3.1-405b", "dtype": "fp8", "accelerator": "b200-sxm"}
    answer = ask("users-per-node", given | {"context_tokens": "1M"}).answer
    assert answer.values["users_per_node"].value == 1
    assert not answer.ok
    assert "kept free that is nobody" in answer.says


def test_a_latent_cache_is_kept_whole_by_every_rank_unless_sequences_are_spread():
    heads = ask(
        "users-per-node", {"model": "deepseek-v3", "accelerator": "h200-sxm", "dtype": "fp8"}
    )
    spread = ask(
        "users-per-node",
        {"model": "deepseek-v3", "accelerator": "h200-sxm", "dtype": "fp8", "attention": "data"},
    )
    one = spread.answer.values["per_user_bytes"].value
    assert one == 70_272 * 8192
    assert heads.answer.values["per_user_bytes"].value == 8 * one


def test_weights_as_shipped_are_counted_and_widened_where_the_device_cannot_multiply_them():
    shipped = ask("users-per-node", {"model": "gpt-oss-120b", "dtype": "native"})
    wide = ask("users-per-node", {"model": "gpt-oss-120b", "dtype": "bf16"})
    assert value(shipped, "left_bytes") > value(wide, "left_bytes") + 160e9
    assert value(shipped, "users_by_compute") == value(wide, "users_by_compute")


def test_a_sweep_gives_the_same_as_asking_at_each_point():
    contexts = np.array([1024.0, 8192.0, 131072.0])
    swept = ask(
        "users-per-node",
        {"context_tokens": Quantity(contexts, parse_unit("tokens"), name="context_tokens")},
    )
    for index, context in enumerate(contexts):
        alone = ask("users-per-node", {"context_tokens": given(context, "tokens")})
        for name, one in alone.answer.values.items():
            found = np.broadcast_to(swept.answer.values[name].value, contexts.shape)[index]
            assert found == pytest.approx(one.value), name


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"tensor_parallel": "6", "gpus": "6"}, "6 does not divide 64 attention heads"),
        ({"tensor_parallel": "4", "gpus": "6"}, "4 does not divide 6 GPUs"),
    ],
)
def test_a_split_that_does_not_divide_is_refused_with_the_nearest_that_do(
    values: dict[str, str], told: str
):
    with pytest.raises(SpecError, match=told) as error:
        ask("users-per-node", values)
    assert error.value.where == "tensor-parallel"
    assert error.value.remedy


def test_a_split_must_divide_the_vocabulary_too():
    with pytest.raises(SpecError, match="tokens of vocabulary"):
        ask("users-per-node", {}, {"vocab": "50257"})


def test_a_type_that_the_device_has_no_units_for_is_refused():
    with pytest.raises(CatalogError, match="fp8"):
        ask("users-per-node", {"accelerator": "a100-80gb-sxm", "dtype": "fp8"})


def with_prompts(**given_values: str) -> dict[str, float]:
    answer = ask("users-per-node", given_values).answer
    return {name: float(one.value) for name, one in answer.values.items()}


def tpot_s(users: float, dtype: str = "bf16") -> float:
    loop = {"concurrency": f"{users:.0f}", "input_tokens": "7168", "output_tokens": "1024"}
    asked_of = ask("step-time", loop | {"dtype": dtype, "tensor_parallel": "8"})
    return float(asked_of.answer.values["tpot_s"].value)


def test_what_a_user_gets_with_prompts_counted_is_what_step_time_says_of_the_same_loop():
    found = with_prompts(context_tokens="8192")
    assert found["users_per_node"] == 176
    assert found["tokens_per_s_with_prompts"] == pytest.approx(1 / tpot_s(176))
    assert found["tokens_per_s_with_prompts"] < 20  # the rate that was asked for


@pytest.mark.parametrize("rate", ["15 tokens/s", "20 tokens/s", "30 tokens/s"])
def test_the_users_that_keep_the_rate_are_the_most_whose_tokens_come_in_time(rate: str):
    found = with_prompts(context_tokens="8192", user_tokens_per_s=rate)
    users, limit = found["users_with_prompts"], 1 / float(rate.split()[0])
    assert tpot_s(users) <= limit < tpot_s(users + 1)


def test_where_nobody_brings_long_prompts_the_rate_is_kept_by_as_many_as_fit():
    found = with_prompts(answer_share="99.9 %", user_tokens_per_s="5 tokens/s")
    assert found["users_with_prompts"] == found["users_per_node"]
    assert found["nodes_with_prompts"] == found["nodes"]


def test_the_sentence_and_a_note_say_what_prompts_take_and_name_the_topic_that_has_more():
    answer = ask("users-per-node", {"dtype": "fp8", "accelerator": "h200-sxm"}).answer
    assert "{nodes_with_prompts} where prompts are counted" in answer.says
    [note] = [one for one in answer.notes if "ridgeline plan step-time" in one]
    words = note.split("ridgeline plan step-time ")[1].split()
    options = dict(zip(words[::2], words[1::2], strict=True))
    same = ask("step-time", {name[2:]: told for name, told in options.items()})
    rate = answer.values["tokens_per_s_with_prompts"].value
    assert same.answer.values["tpot_s"].value == pytest.approx(1 / rate, rel=0.001)


def test_two_copies_on_a_node_keep_the_rate_for_twice_the_users_of_one():
    one = with_prompts(gpus="4", tensor_parallel="4", dtype="fp8")
    two = with_prompts(gpus="8", tensor_parallel="4", dtype="fp8")
    assert two["users_with_prompts"] == 2 * one["users_with_prompts"]
    assert two["tokens_per_s_with_prompts"] == one["tokens_per_s_with_prompts"]


def test_a_split_that_no_steps_are_fitted_to_says_that_prompts_are_not_counted():
    answer = ask("users-per-node", {"gpus": "16"}).answer
    assert "users_with_prompts" not in answer.values
    assert any("Prompts are not counted" in note for note in answer.notes)
