"""A trillion parameters, read as total and as active."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


@pytest.mark.proves("S148")
def test_a_trillion_in_all_keeps_16_tb_and_computes_what_is_active_with_both_readings_shown():
    asked = ask("trillion-training", {"params": "1T"}, {"memory_bytes": "80GB"})
    values = asked.answer.values
    assert values["state_bytes"].value == 16e12
    assert values["state_gpus"].value == 200
    dense, mixture, larger = asked.answer.table
    assert dense["state_bytes"].value == mixture["state_bytes"].value
    assert dense["flop_per_token"].value / mixture["flop_per_token"].value == pytest.approx(32)
    assert larger["state_bytes"].value == 32 * 16e12  # a trillion of them active
    assert larger["flop_per_token"].value == dense["flop_per_token"].value
    assert values["run_dense_s"].value / values["run_s"].value == pytest.approx(32)
    assert sum("failure" in note for note in asked.answer.notes) == 2


def test_read_as_active_the_state_grows_with_the_sparsity_and_compute_stays():
    total = ask("trillion-training", {"reading": "total"}).answer.values
    active = ask("trillion-training", {"reading": "active"}).answer.values
    assert active["active_params"].value == 1e12
    assert active["state_bytes"].value == pytest.approx(32 * total["state_bytes"].value)
    assert active["run_s"].value == pytest.approx(total["run_dense_s"].value)


def test_fewer_devices_than_one_group_of_experts_are_refused():
    with pytest.raises(SpecError, match="32 GPUs are fewer than the 64 ranks") as caught:
        ask("trillion-training", {"gpus": 32})
    assert caught.value.where == "gpus"


def test_experts_that_do_not_divide_over_ranks_are_refused():
    with pytest.raises(SpecError, match="64 ranks do not divide 100 experts"):
        ask("trillion-training", {"experts": 100})
