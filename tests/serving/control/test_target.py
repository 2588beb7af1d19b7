"""Where the number of requests for one replica comes from."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.serving.control.target import CONTEXT_TOKENS, target_of
from ridgeline.serving.plan.step_rates import step_time_of
from ridgeline.serving.spec import Scale

MACHINE = "llama-3.1-8b@h100-sxm"


def scale(**told) -> Scale:
    return Scale.model_validate(told)


def test_an_operators_number_is_taken_as_it_is() -> None:
    assert target_of(scale(target_per_replica=3.5), 64).per_replica == 3.5


def test_where_nothing_is_known_it_is_a_part_of_the_slots() -> None:
    target = target_of(scale(), 64)
    assert target.per_replica == pytest.approx(51.2)
    assert "64 slots" in target.source
    assert target_of(scale(), 1).per_replica == 1.0


def test_the_step_time_model_says_how_many_are_decoded_in_time() -> None:
    target = target_of(scale(tpot="20ms", step_times=MACHINE), 4096)
    batch = target.per_replica
    step, _ = step_time_of(MACHINE)
    assert step.decode_s(batch, batch * CONTEXT_TOKENS) <= 0.02
    assert step.decode_s(batch + 1, (batch + 1) * CONTEXT_TOKENS) > 0.02
    assert MACHINE in target.source
    assert target_of(scale(tpot="20ms", step_times=MACHINE), 8).per_replica == 8


def test_step_times_of_nothing_are_refused() -> None:
    with pytest.raises(SpecError, match="no MODEL@ACCELERATOR"):
        target_of(scale(tpot="20ms", step_times="gpt-9@abacus"), 8)
    with pytest.raises(ValueError, match="go together"):
        scale(tpot="20ms")
