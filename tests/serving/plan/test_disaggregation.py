"""Prefill and decode apart: what travels, what it takes, from which load it pays."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask
from ridgeline.working.sensitivity import sensitivity

topics()

TOPIC = "prefill-decode-split"
MOE = {"model": "deepseek-v3", "accelerator": "h200-sxm", "dtype": "fp8"}


@pytest.mark.proves("S059")
def test_an_8k_request_of_a_70b_moves_2_68_gb_in_53_7_ms():
    values = ask(TOPIC, {"prompt": "8k", "link_bytes_per_s": "400Gb/s"}).answer.values
    assert values["cache_bytes"].to("GB") == pytest.approx(2.68, rel=0.01)
    assert values["transfer_s"].to("ms") == pytest.approx(53.7, rel=0.01)


@pytest.mark.proves("S059")
def test_at_the_load_from_which_it_is_faster_both_arrangements_take_a_request_as_long():
    asked = ask(TOPIC, {})
    rate = asked.answer.values["faster_above_per_s"].value
    prefill, step = asked.find("prefill_s")[0].value, asked.find("decode_step_s")[0].value
    decode = 512 * step
    together = prefill + decode / (1 - rate * prefill)
    apart = prefill + asked.answer.values["transfer_s"].value + decode
    assert together == pytest.approx(apart, rel=1e-9)


@pytest.mark.proves("S059")
def test_at_the_break_even_load_a_node_that_does_both_just_keeps_its_promise():
    asked = ask(TOPIC, {"tpot_slo": "20ms"})
    assert next(iter(asked.answer.values)) == "break_even_per_s"
    load = asked.answer.values["break_even_per_s"].value
    prefill, step = asked.find("prefill_s")[0].value, asked.find("decode_step_s")[0].value
    assert step / (1 - load * prefill) == pytest.approx(0.02)


@pytest.mark.proves("S059")
def test_the_decision_turns_where_a_node_could_do_more_than_the_break_even_lets_it():
    """On many nodes, where counting whole ones hides nothing."""
    found = ask(TOPIC, {"tpot_slo": "20ms"})
    prefill, step = found.find("prefill_s")[0].value, found.find("decode_step_s")[0].value
    busy = found.answer.values["full_per_s"].value * prefill
    full = step / (1 - busy)  # a token's time on a node that is full
    for factor, says in ((1.02, "Keep together"), (0.98, "Split")):
        given = {"tpot_slo": f"{full * factor}s", "requests_per_s": "5000requests/s"}
        answer = ask(TOPIC, given).answer
        assert answer.says.startswith(says)
        even, most = (answer.values[n].value for n in ("break_even_per_s", "full_per_s"))
        assert (even < most) is (says == "Split")


@pytest.mark.parametrize("promised_ms", [12.5, 15, 20, 30, 40, 50, 80, 200])
@pytest.mark.parametrize("load", [1, 20, 50])
def test_verdict_node_counts_and_notes_agree(promised_ms: float, load: int):
    given = {"tpot_slo": f"{promised_ms}ms", "requests_per_s": f"{load}requests/s"}
    answer = ask(TOPIC, given).answer
    apart, together = (answer.values[n].value for n in ("nodes_apart", "nodes_together"))
    splits = answer.says.startswith("Split")
    assert splits is (apart < together)
    assert answer.says.startswith("Keep together") is not splits
    assert answer.table[1]["together"].value <= promised_ms / 1e3 * (1 + 1e-9)
    sooner = [note for note in answer.notes if "sooner" in note]
    assert not (splits and sooner)
    assert all(("as many" in note) is (apart == together) for note in sooner)


def test_sensitivity_varies_the_break_even_of_the_decision():
    told = sensitivity(TOPIC)
    assert told.name == "break_even_per_s"
    moved = {swing.name.rsplit(".", 1)[-1] for swing in told.swings}
    assert {"prompt_tokens", "tpot_slo_s", "mfu"} <= moved


def test_no_step_of_the_derivation_is_made_of_one_with_its_own_name():
    for given in ({}, MOE, {"tpot_slo": "20ms"}):
        for root in ask(TOPIC, given).roots:
            for step in root.walk():
                inner = [one.name for one in step.inputs if one.name]
                assert not step.name or step.name not in inner


@pytest.mark.proves("S075")
def test_deepseek_v3_ships_70_kb_a_token_and_8k_in_11_5_ms():
    values = ask(TOPIC, MOE | {"link_bytes_per_s": "400Gb/s", "prompt": "8k"}).answer.values
    assert values["cache_bytes_per_token"].value == pytest.approx(70_272)
    assert values["transfer_s"].to("ms") == pytest.approx(11.5, rel=0.01)


@pytest.mark.proves("S075")
def test_pools_have_the_nodes_that_each_phase_keeps_busy():
    asked = ask(TOPIC, MOE | {"requests_per_s": "50requests/s"})
    values = asked.answer.values
    prefill, step = asked.find("prefill_s")[0].value, asked.find("decode_step_s")[0].value
    busy_prefill, busy_decode = 50 * prefill, 50 * 512 * step / 64
    assert values["prefill_nodes"].value - 1 < busy_prefill <= values["prefill_nodes"].value
    assert values["decode_nodes"].value - 1 < busy_decode <= values["decode_nodes"].value


@pytest.mark.proves("S075")
def test_a_promise_that_prefill_and_transfer_break_is_a_no():
    fine = ask(TOPIC, MOE | {"ttft_slo": "2s", "tpot_slo": "50ms"}).answer
    assert fine.ok
    assert not ask(TOPIC, MOE | {"ttft_slo": "50ms"}).answer.ok
    assert not ask(TOPIC, MOE | {"tpot_slo": "5ms"}).answer.ok
    assert fine.table[0]["apart"].value < fine.table[0]["promise"].value


def test_where_apart_is_only_faster_than_promised_the_answer_says_so_and_keeps_together():
    def told(**given):
        return any("faster than promised" in note for note in ask(TOPIC, given).answer.notes)

    assert told(tpot_slo="50ms")
    assert not told(tpot_slo="20ms")


def test_a_cache_that_travels_too_long_keeps_both_phases_together():
    answer = ask(TOPIC, MOE | {"ttft_slo": "100ms"}).answer  # 97 ms of prefill, 11.5 on the way
    assert answer.ok
    assert answer.says.startswith("Keep together: apart the first token comes later")


def test_devices_that_do_not_divide_the_heads_are_refused():
    with pytest.raises(SpecError, match="6 does not divide 64 attention heads"):
        ask(TOPIC, {"gpus": 6})


def test_a_model_that_does_not_fit_is_refused_with_a_remedy():
    with pytest.raises(SpecError, match="leaves no memory") as caught:
        ask(TOPIC, {"model": "deepseek-v3", "dtype": "fp8"})
    assert "more devices" in caught.value.remedy
