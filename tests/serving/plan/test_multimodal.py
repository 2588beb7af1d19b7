"""Pictures: tokens, and which stage gives in first."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


def tokens(side, patch, merge=1):
    given = {"sides_px": side, "patch_px": patch, "merge": merge}
    return ask("image-prompts", given).answer.values["tokens_per_image"].value


@pytest.mark.proves("S070")
def test_a_336_px_picture_is_576_tokens_and_a_1024_px_one_at_28_px_is_1369():
    assert tokens("336", 14) == 576
    assert tokens("1024", 28) == tokens("1024", 14, merge=2) == 37 * 37 == 1369


@pytest.mark.proves("S070")
def test_pictures_lengthen_prefill_and_shrink_the_batch_as_their_tokens_do():
    asked = ask("image-prompts", {"sides_px": "1024", "text": "200", "output": "200"})
    values = asked.answer.values
    seen = 1024 + 200
    left = asked.find("left_bytes")[0].value
    assert values["batch"].value == left // ((seen + 200) * 147_456)
    assert values["batch_text_only"].value == left // (400 * 147_456)
    work = 2 * 8_144_793_840 * seen + 2 * seen**2 * 32 * 128 * 36
    assert values["prefill_s"].value == pytest.approx(work / (989.4e12 * 0.4), rel=1e-6)


@pytest.mark.proves("S070")
def test_the_first_bottleneck_is_the_stage_that_takes_most_of_the_devices_time():
    prefill = ask("image-prompts", {"sides_px": "1024"}).answer
    assert prefill.table[0]["longest"] == "prefill"
    heavy = ask("image-prompts", {"sides_px": "1024", "encoder_params": "6B"}).answer
    assert heavy.table[0]["longest"] == "encoder"
    long = ask("image-prompts", {"sides_px": "336", "output": "4000"}).answer
    assert long.table[0]["longest"] == "decode"


@pytest.mark.proves("S070")
def test_the_rate_is_one_over_the_device_time_of_all_stages():
    asked = ask("image-prompts", {"sides_px": "1024", "text": "200", "output": "200"})
    values = {name: one.value for name, one in asked.answer.values.items()}
    stages = values["encoder_s"] + values["prefill_s"] + values["decode_s"]
    assert values["requests_per_s"] == pytest.approx(1 / stages)
    # 200 steps that all running requests share: reads of the weights and of every cache.
    caches = values["batch"] * (1024 + 400) * 147_456
    weights = asked.find("weight_bytes")[0].value
    assert values["decode_s"] == pytest.approx(
        200 * (weights + caches) / 3.35e12 / values["batch"], rel=1e-6
    )


def test_a_model_that_leaves_no_room_for_a_picture_is_refused():
    with pytest.raises(SpecError, match="leaves no memory"):
        ask("image-prompts", {"model": "llama-3.1-70b"})
