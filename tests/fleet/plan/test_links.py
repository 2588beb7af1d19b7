"""Flaps and replays, with the ledger's inputs and against packets sent one by one."""

import random

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

FLAP = {"flap_s": "2 s", "gpus": 1000, "restart_s": "5 min", "checkpoint_s": "30 min"}
REPLAY = {"replays": 1_000_000, "packets": 1_000_000_000, "window_packets": 64}


@pytest.mark.proves("S107")
def test_a_2_s_flap_on_1000_gpus_costs_0_56_gpu_hours_ridden_out_and_333_restarted():
    values = ask("link-flap", FLAP).answer.values
    assert values["cost_gpu_s"].to("h") == pytest.approx(0.556, rel=0.01)
    assert values["stall_gpu_s"].to("h") == pytest.approx(0.556, rel=0.01)
    assert values["restart_gpu_s"].to("h") == pytest.approx(333, rel=0.01)
    assert values["restart_to_stall"].value == pytest.approx(600)


@pytest.mark.proves("S107")
@pytest.mark.parametrize(
    ("exponent", "timeout_s", "restarts"), [(14, 0.47, True), (18, 7.5, False), (20, 30, False)]
)
def test_a_flap_restarts_the_job_once_it_outlasts_the_transport_timeout(
    exponent, timeout_s, restarts
):
    asked = ask("link-flap", FLAP | {"timeout_exponent": exponent})
    values = asked.answer.values
    assert values["timeout_s"].value == pytest.approx(timeout_s, rel=0.01)
    expected = values["restart_gpu_s" if restarts else "stall_gpu_s"].value
    assert values["cost_gpu_s"].value == expected
    assert ("restarts" in asked.answer.says) is restarts


def test_the_bill_of_a_flapping_link_is_its_price_times_how_often():
    values = ask(
        "link-flap", FLAP | {"price_usd_per_s": "2 USD/h", "flaps_per_s": "3 /week"}
    ).answer.values
    assert values["cost_usd"].value == pytest.approx(1000 * 2 / 3600 * 2)
    assert values["cost_usd_per_s"].to("USD/week") == pytest.approx(3 * 1000 * 2 / 3600 * 2)


def sent_until_delivered(packets, window, every, generator):
    """Go-back-N, packet by packet: a replay sends a whole window again."""
    sent = 0
    for _ in range(packets):
        sent += 1
        if generator.random() < 1 / every:
            sent += window
    return sent


@pytest.mark.proves("S125")
def test_a_replay_rate_of_0_1_percent_with_a_window_of_64_costs_6_percent():
    values = ask("link-replay", REPLAY).answer.values
    assert values["replay_share"].value == pytest.approx(0.001)
    assert values["lost_share"].value == pytest.approx(0.060, rel=0.01)
    sent = sent_until_delivered(400_000, 64, 1000, random.Random(7))
    assert values["lost_share"].value == pytest.approx(1 - 400_000 / sent, rel=0.05)
    assert values["kept_bytes_per_s"].to("Gb/s") == pytest.approx(400 * 0.94, rel=0.01)
    assert values["selective_loss_share"].value == pytest.approx(0.001, rel=0.01)
    assert values["job_gpus"].value == pytest.approx(1000 * 0.06015, rel=1e-3)


@pytest.mark.proves("S125")
@pytest.mark.parametrize(
    ("replays", "watched", "verdict"),
    [
        (0, "10 min", "healthy"),
        (1000, "10 min", "watch"),
        (1_000_000, "10 min", "drain"),  # 6 % of the bandwidth
        (200_000, "1 min", "drain"),  # 1.3 %, but 3,333 a second
    ],
)
def test_the_verdict_is_to_watch_any_replay_and_to_drain_what_is_felt(replays, watched, verdict):
    answer = ask("link-replay", REPLAY | {"replays": replays, "watched_s": watched}).answer
    assert answer.says.startswith(verdict)
    assert answer.ok is (verdict != "drain")


def test_without_replays_no_note_speaks_of_their_cost():
    assert not any("costs" in note for note in ask("link-replay", {"replays": 0}).answer.notes)


def test_replays_that_bit_errors_do_not_explain_point_elsewhere():
    # 400 Gb/s for 10 min is 2.4e14 bits; 7,200 errors are 3e-11, and of 32,768 bits 1e-6 fail.
    clean = ask("link-replay", REPLAY | {"bit_errors": 7200}).answer
    assert clean.values["replays_from_bit_errors"].value == pytest.approx(32768 * 3e-11, rel=1e-3)
    assert any("slow receiver" in note for note in clean.notes)
    dirty = ask("link-replay", REPLAY | {"bit_errors": 7_200_000}).answer
    assert not any("slow receiver" in note for note in dirty.notes)
