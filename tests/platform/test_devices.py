"""Whose a device is. nvidia-smi is a script of the test's own."""

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import LaunchError, SpecError
from ridgeline.platform.devices import Device, Devices, chosen, present, visible

FOUR = tuple(Device(number, f"GPU-{number}a{number}b", "H100") for number in range(4))
SMI = """#!/bin/sh
printf '%s\\n' '0, GPU-0a0b, H100' '1, GPU-1a1b, H100' '2, GPU-2a2b, H100' '3, GPU-3a3b, H100'
"""
BROKEN = """#!/bin/sh
echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
exit 9
"""
HOLDS = """
import sys
from ridgeline.platform.devices import Device, Devices
loan = Devices([Device(0, "GPU-0a0b", "H100")], 1).borrow()
print("has it", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Puts an nvidia-smi of this text on PATH, or none."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(text):
        path = tmp_path / "nvidia-smi"
        path.write_text(text)
        path.chmod(0o700)

    return put


def numbers(loan):
    return [one.number for one in loan.devices]


def test_without_nvidia_smi_there_are_none(smi):
    assert present() == ()
    devices = Devices.of(1, None, 9, "engine")
    assert devices.borrow().env == {}
    assert devices.has_room()


def test_all_that_nvidia_smi_tells_of_are_there(smi):
    smi(SMI)
    assert present() == FOUR


def test_a_driver_that_does_not_answer_is_not_taken_for_no_devices(smi):
    smi(BROKEN)
    with pytest.raises(LaunchError, match="couldn't communicate") as caught:
        present()
    assert "devices: []" in caught.value.remedy


def test_who_wants_none_gets_none_whatever_there_is(smi):
    smi(BROKEN)
    assert Devices.of(1, [], 2, "engine").borrow().env == {}


@pytest.mark.parametrize(
    ("told", "seen"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("2,0", [2, 0]),
        ("GPU-3a, 1", [3, 1]),
    ],
)
def test_what_cuda_may_not_see_is_not_ours(told, seen):
    assert [one.number for one in visible(FOUR, told)] == seen


@pytest.mark.parametrize("told", ["7", "GPU-", "MIG-1"])
def test_a_device_nobody_knows_is_said(told):
    with pytest.raises(LaunchError, match="is no device"):
        visible(FOUR, told)


def test_no_device_is_lent_twice_and_all_come_back():
    devices = Devices(FOUR, 1)
    loans = [devices.borrow() for _ in range(4)]
    assert sorted(number for loan in loans for number in numbers(loan)) == [0, 1, 2, 3]
    assert not devices.has_room()
    with pytest.raises(LaunchError, match="1 devices are needed, and 0 of 4 free"):
        devices.borrow()
    loans[2].close()
    loans[2].close()
    assert numbers(devices.borrow()) == numbers(loans[2])


def test_a_program_is_told_to_count_as_nvidia_smi_does():
    loan = Devices(FOUR, 2).borrow()
    assert loan.env == {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_models_share_what_there_is():
    one = Devices(FOUR, 1).borrow()
    pair = Devices(FOUR, 2).borrow()
    assert numbers(one) == [0]
    assert numbers(pair) == [2, 3]  # neighbours, not 1 and 2
    assert not Devices(FOUR, 2).has_room()
    assert Devices(FOUR, 1).has_room()


def test_another_process_has_its_own_and_the_system_takes_them_back(tmp_path):
    devices = Devices(FOUR[:1], 1)
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "has it\n"
        assert not devices.has_room()
        os.kill(other.pid, signal.SIGKILL)
    assert devices.has_room()


def test_a_device_that_is_not_here_is_said(smi):
    smi(SMI)
    with pytest.raises(SpecError, match="there is no device 5 for us here, but 0, 1, 2, 3"):
        Devices.of(1, [1, 5], 1, "models chat.engine")
    assert Devices.of(1, [3, 1], 2, "e").there == (FOUR[3], FOUR[1])


def test_more_replicas_than_devices_are_refused_before_any_starts(smi):
    smi(SMI)
    with pytest.raises(SpecError, match="3 replicas of 2 devices need 6; 4 are here") as caught:
        Devices.of(2, None, 3, "models chat.engine")
    assert caught.value.remedy == "replicas.max: 2"


@given(st.sets(st.integers(0, 15)), st.integers(1, 8))
def test_as_many_as_asked_of_the_free_ones_or_none(free, count):
    there = [Device(number, f"GPU-{number}", "x") for number in sorted(free)]
    mine = chosen(there, count)
    assert len(mine) == (count if len(free) >= count else 0)
    assert set(mine) <= set(there)
    assert len(set(mine)) == len(mine)
    blocks = [b for b in range(0, 16, count) if set(range(b, b + count)) <= free]
    if blocks:
        assert [one.number for one in mine] == [*range(blocks[0], blocks[0] + count)]
