"""Tensor parallelism at batch one: what it shortens and what it does not."""

import itertools

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

TOPIC = "tensor-parallel-latency"
LEDGER = {"params": "70.6B"}
LOW = {"all_reduce": "8us", "kernels_a_layer": 10, "launch": "3us"}


@pytest.mark.proves("S095")
def test_a_70b_on_tp8_reads_5_27_ms_reduces_160_times_and_steps_in_8_9_to_12_ms():
    low = ask(TOPIC, LOW, LEDGER).answer.values
    assert low["read_s"].to("ms") == pytest.approx(5.27, rel=0.01)
    assert low["all_reduces"].value == 160
    assert low["launches"].value == 800
    assert low["step_s"].to("ms") == pytest.approx(8.9, rel=0.01)
    assert low["speedup"].value == pytest.approx(4.7, rel=0.01)
    given = {"all_reduce": "20us", "kernels_a_layer": "12.5", "launch": "3.5us"}
    high = ask(TOPIC, given, LEDGER).answer.values
    assert high["launches"].value == 1000
    assert high["step_s"].to("ms") == pytest.approx(12.0, rel=0.01)
    assert high["speedup"].value == pytest.approx(3.5, rel=0.01)


@pytest.mark.proves("S095")
def test_the_floor_is_what_is_left_when_reading_takes_no_time():
    fast = LEDGER | {"h100-sxm.memory_bytes_per_s": "1000000TB/s"}
    floor = ask(TOPIC, LOW, LEDGER).answer.values["floor_s"].value
    assert ask(TOPIC, LOW, fast).answer.values["step_s"].value == pytest.approx(floor, rel=1e-4)
    assert floor == pytest.approx(160 * 8e-6 + 800 * 3e-6, rel=0.01)


def test_doubling_the_devices_never_doubles_the_rate():
    table = ask(TOPIC, {"tensor_parallel": 16}).answer.table
    steps = [row["step"].value for row in table]
    assert [row["degree"].value for row in table] == [1, 2, 4, 8, 16]
    assert all(a / 2 < b < a for a, b in itertools.pairwise(steps))


@pytest.mark.parametrize("degree", [3, 6, 128])
def test_a_degree_that_does_not_divide_the_heads_is_refused(degree):
    with pytest.raises(SpecError, match=f"{degree} does not divide"):
        ask(TOPIC, {"tensor_parallel": degree})
