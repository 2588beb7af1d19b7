"""Prefill and decode apart: what travels, what it takes, from which load it pays."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

TOPIC = "prefill-decode-split"
MOE = {"model": "deepseek-v3", "accelerator": "h200-sxm", "dtype": "fp8"}


@pytest.mark.proves("S059")
def test_an_8k_request_of_a_70b_moves_2_68_gb_in_53_7_ms():
    values = ask(TOPIC, {"prompt": "8k", "link_bytes_per_s": "400Gb/s"}).answer.values
    assert values["cache_bytes"].to("GB") == pytest.approx(2.68, rel=0.01)
    assert values["transfer_s"].to("ms") == pytest.approx(53.7, rel=0.01)


@pytest.mark.proves("S059")
def test_at_the_break_even_load_both_arrangements_take_a_request_as_long():
    asked = ask(TOPIC, {})
    rate = asked.answer.values["break_even_per_s"].value
    prefill, step = asked.find("prefill_s")[0].value, asked.find("decode_step_s")[0].value
    decode = 512 * step
    together = prefill + decode / (1 - rate * prefill)
    apart = prefill + asked.answer.values["transfer_s"].value + decode
    assert together == pytest.approx(apart, rel=1e-9)


@pytest.mark.proves("S059")
def test_the_decision_turns_at_the_break_even():
    even = ask(TOPIC, {}).answer.values["break_even_per_s"].value
    low = ask(TOPIC, {"requests_per_s": f"{even * 0.9}requests/s"}).answer
    assert low.says.startswith("Keep together")
    assert low.values["saved_s"].value < 0
    high = ask(TOPIC, {"requests_per_s": f"{even * 1.1}requests/s"}).answer
    assert high.says.startswith("Split")
    assert high.values["saved_s"].value > 0


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


def test_where_both_promises_hold_together_the_answer_says_that_splitting_is_not_needed():
    def told(**given):
        return any("is not needed" in note for note in ask(TOPIC, given).answer.notes)

    assert told(tpot_slo="50ms")
    assert not told(tpot_slo="20ms")


def test_devices_that_do_not_divide_the_heads_are_refused():
    with pytest.raises(SpecError, match="6 does not divide 64 attention heads"):
        ask(TOPIC, {"gpus": 6})


def test_a_model_that_does_not_fit_is_refused_with_a_remedy():
    with pytest.raises(SpecError, match="leaves no memory") as caught:
        ask(TOPIC, {"model": "deepseek-v3", "dtype": "fp8"})
    assert "more devices" in caught.value.remedy
