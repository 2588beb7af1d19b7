"""Videos: FLOPs, seconds, and what two at once do."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

TOPIC = "video-generation"
LEDGER = {"active_params": "14B", "params": "14B", "bf16_flop_per_s": "989TFLOP/s"}
HD = {"width_px": 1280, "height_px": 720}


@pytest.mark.proves("S144")
def test_14b_in_40_guided_passes_takes_36_s_at_480p_and_137_s_at_720p_on_8_h100():
    small = ask(TOPIC, {"mfu": "0.5"}, LEDGER).answer.values
    assert small["tokens"].value == 32_760
    assert small["seconds"].value == pytest.approx(36.33, rel=0.001)
    large = ask(TOPIC, HD, LEDGER).answer.values
    assert large["tokens"].value == 75_600
    assert large["seconds"].value == pytest.approx(137, rel=0.01)
    assert large["seconds"].value / small["seconds"].value == pytest.approx(3.8, rel=0.01)


@pytest.mark.proves("S144")
def test_flops_are_counted_by_hand_matrix_products_and_full_attention():
    tokens = 32_760
    one = 2 * 14e9 * tokens + 4 * tokens**2 * 5120 * 40
    assert ask(TOPIC, {}, LEDGER).answer.values["video_flop"].value == pytest.approx(80 * one)


@pytest.mark.proves("S144")
def test_a_video_is_far_above_the_ridge_so_batching_saves_nothing():
    values = ask(TOPIC, {}, LEDGER).answer.values
    assert values["compute_over_read"].value > 100
    assert values["progress_s"].value == pytest.approx(values["seconds"].value / 40)
    assert values["one_gpu_s"].to("min") == pytest.approx(5, rel=0.05)


@pytest.mark.proves("S144")
def test_the_queue_grows_without_end_where_videos_come_faster_than_they_are_made():
    assert ask(TOPIC, {"requests_per_s": "0requests/s"}).answer.values["queue_s"].value == 0
    full = ask(TOPIC, {"requests_per_s": "1requests/s"}).answer
    assert full.values["queue_s"].value == float("inf")
    assert not full.ok
    assert "a queue without end" in full.says


def test_what_twice_the_frames_take_is_told_for_the_model_that_was_asked():
    for model, frames, double in (("wan2.1-t2v-14b", 81, 165), ("wan2.1-t2v-1.3b", 81, 165)):
        one, two = (ask(TOPIC, {"model": model, "frames": n}).answer for n in (frames, double))
        assert two.values["tokens"].value == 2 * one.values["tokens"].value
        ratio = two.values["seconds"].value / one.values["seconds"].value
        assert any(f"take {ratio:.4g} times as long" in note for note in one.notes)


def test_a_language_model_makes_no_videos():
    with pytest.raises(SpecError, match="makes no videos"):
        ask(TOPIC, {"model": "llama-3.1-8b"})
