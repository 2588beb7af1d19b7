"""Replace or keep: the threshold against a simulation of devices, and a device's own history."""

import numpy as np
import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

DAY = 86_400.0


def device(**given):
    return ask("device-replacement", given).answer


def simulated(threshold, share, bad, good, window, fault_usd, replace_usd, devices, seed):
    """Mean cost of devices whose faults are drawn one by one; a new one faults as a good one."""
    rng = np.random.default_rng(seed)
    is_bad = rng.random(devices) < share
    mean = np.where(is_bad, bad, good)
    at, faults = np.zeros(devices), np.zeros(devices)
    replaced = np.zeros(devices, dtype=bool)
    while (at < window).any():
        at = at + rng.exponential(np.where(replaced, good, mean))
        inside = at < window
        faults += inside
        replaced |= inside & (faults >= threshold)
    return float(np.mean(fault_usd * faults + replace_usd * replaced))


@pytest.mark.proves("S131")
@pytest.mark.parametrize(
    ("share", "bad", "good", "handling"),
    [(0.05, 20, 1000, 500), (0.3, 40, 600, 500), (0.02, 8, 300, 4000), (0.1, 60, 400, 100)],
)
def test_the_threshold_is_the_cheapest_and_its_cost_that_of_a_simulation(
    share, bad, good, handling
):
    answer = device(
        faulty_share=str(share), faulty_mean_s=f"{bad} day", good_mean_s=f"{good} day",
        window_s="365 day", handling_usd=f"{handling} USD", job_gpus="512", lost_s="20 min",
        price_usd_per_s="2.5 USD/h", out_s="3 day", node_gpus="8",
    )  # fmt: skip
    fault_usd, replace_usd = 512 / 3 * 2.5, handling + 3 * 24 * 8 * 2.5
    seen = [
        simulated(k, share, bad, good, 365, fault_usd, replace_usd, 60_000, seed=k)
        for k in [*range(1, 13), 10**9]
    ]
    told = [row["expected cost"].value for row in answer.table]
    assert told == pytest.approx(seen, rel=0.05)
    best = answer.values["threshold"].value
    assert min(seen) == pytest.approx(seen[12 if best == float("inf") else int(best) - 1], rel=0.05)
    assert answer.values["least_cost"].value == min(told)


@pytest.mark.proves("S131")
def test_a_device_is_replaced_when_its_faults_came_fast_and_kept_when_they_came_slowly():
    fast, slow = device(faults="2", seen_s="30 day"), device(faults="2", seen_s="300 day")
    assert fast.says.startswith("replace")
    assert slow.says.startswith("keep")
    assert fast.values["keep_cost"].value > fast.values["replace_cost"].value
    assert slow.values["keep_cost"].value < slow.values["replace_cost"].value


def test_the_chance_that_it_is_bad_is_that_of_drawn_devices_with_the_same_history():
    rng = np.random.default_rng(5)
    is_bad = rng.random(400_000) < 0.05
    faults = rng.poisson(np.where(is_bad, 30 / 20, 30 / 1000))
    same = is_bad[faults == 2]
    chance = device(faults="2", seen_s="30 day").values["chance_it_is_bad"].value
    assert chance == pytest.approx(same.mean(), abs=0.01)


def test_a_fatal_sign_replaces_at_once_whatever_the_history():
    answer = device(faults="0", seen_s="300 day", fatal="yes")
    assert answer.says.startswith("replace at once")
    assert answer.values["chance_it_is_bad"].value == 1


def test_a_dear_replacement_waits_for_more_repeats_and_a_dear_fault_for_fewer():
    usual = device().values["threshold"].value
    assert device(handling_usd="20000 USD").values["threshold"].value > usual
    assert device(lost_s="6 h").values["threshold"].value < usual


def test_where_nearly_all_are_good_and_replacing_is_dear_it_never_pays():
    answer = device(faulty_share="0.0005", handling_usd="50000 USD")
    assert answer.values["threshold"].value == float("inf")


def test_a_bad_device_that_faults_less_than_a_good_one_is_refused():
    with pytest.raises(SpecError) as caught:
        device(faulty_mean_s="1000 day", good_mean_s="100 day")
    assert caught.value.where == "faulty-mean"


def test_never_is_said_in_words():
    assert "never pays within {window_s}" in device(job_gpus="1").says
