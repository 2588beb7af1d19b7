"""The scarce resource picks the method; savings by hand."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import Asked, ask

topics()

PARAMS = 70_553_706_496
CACHE = 327_680


def method(**given: str) -> Asked:
    return ask("quantization-method", given)


def value(asked: Asked, name: str) -> float:
    return float(asked.answer.values[name].value)


#: Loads of Llama 3.1 70B on 8 H100: a few short chats, long prompts, many long chats.
FEW = {"batch": "8", "context_tokens": "2k", "prompt_tokens": "512", "output_tokens": "500"}
PROMPTS = {"batch": "32", "context_tokens": "4k", "prompt_tokens": "4k", "output_tokens": "50"}
LONG = {"batch": "40", "context_tokens": "32k", "prompt_tokens": "512", "output_tokens": "1000"}


@pytest.mark.proves("S181")
@pytest.mark.parametrize(
    ("load", "scarce", "picked", "saved"),
    [
        (FEW, "weights", "int4 weights", PARAMS * (2 - 0.5 - 2 / 128)),
        (PROMPTS, "compute", "8-bit both", PARAMS + 32 * 4096 * CACHE / 2),
        (LONG, "cache", "8-bit cache", 40 * 32_768 * CACHE / 2),
    ],
)
def test_the_scarce_resource_picks_the_method_and_its_saving_is_stated(
    load: dict[str, str], scarce: str, picked: str, saved: float
):
    asked = method(**load)
    assert asked.answer.says.startswith(f"Scarce: {scarce}, so {picked}: it saves")
    assert value(asked, "saved_bytes") == pytest.approx(saved)
    assert value(asked, "gain") > 1
    # The bytes, the gain and the evals of each of the three are in the table.
    assert [row["method"] for row in asked.answer.table] == [
        "int4 weights",
        "8-bit both",
        "8-bit cache",
    ]
    assert all(row["saves"].value > 0 and row["measure"] for row in asked.answer.table)


def test_int4_weights_read_faster_and_multiply_no_faster():
    rows = {row["method"]: row for row in method(**PROMPTS).answer.table}
    assert rows["int4 weights"]["as fast"].value < 1.2
    assert rows["8-bit both"]["as fast"].value > 1.8
    few = {row["method"]: row for row in method(**FEW).answer.table}
    assert few["int4 weights"]["as fast"].value > 2


def test_weights_that_do_not_fit_are_scarce_whatever_is_slow():
    asked = method(**PROMPTS, gpus="1")
    assert asked.answer.says.startswith("Scarce: weights, so int4 weights")


def test_a_named_scarcity_is_taken_as_it_is():
    assert method(**FEW, scarce="cache").answer.says.startswith("Scarce: cache, so 8-bit cache")


@pytest.mark.parametrize(
    ("load", "failed", "instead"),
    [(FEW, "int4 weights", "8-bit both"), (LONG, "8-bit cache", "int4 weights")],
)
def test_evals_that_fail_pass_the_choice_on(load: dict[str, str], failed: str, instead: str):
    assert f"so {instead}: it saves" in method(**load, failed_evals=failed).answer.says


def test_nothing_else_relieves_arithmetic_when_8_bits_fail():
    assert not method(**PROMPTS, failed_evals="8-bit both").answer.ok


def test_a_step_of_a_mixture_reads_the_experts_that_its_batch_visits():
    given = {"model": "qwen3-235b-a22b", "batch": "4", "context_tokens": "1k", "gpus": "8"}
    asked = method(**given)
    rows = {row["method"]: row["step"].value for row in asked.answer.table}
    # 128 experts, 8 a token: 4 tokens visit 29; all of 235e9 weights would take 17.5 ms.
    assert value(asked, "before_step_s") < 0.35 * 235.1e9 * 2 / (8 * 3.35e12)
    assert rows["int4 weights"] < rows["8-bit both"] < rows["8-bit cache"]


def test_a_device_without_fp8_multiplies_int8():
    asked = method(**PROMPTS, accelerator="a100-80gb-sxm")
    assert "so 8-bit both: it saves" in asked.answer.says
    assert any("no fp8 units" in note for note in asked.answer.notes)
