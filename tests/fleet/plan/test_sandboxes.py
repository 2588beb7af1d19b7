"""Sandboxed sessions on hosts: by memory, by CPU, and the level that each kind of code needs."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

ROW = {"sessions": "50000", "isolation": "microvm", "guest_bytes": "256 MB", "host_bytes": "1 TB"}
FIVE_MB = {"microvm_overhead_bytes": "5MB"}


def sandboxes(overrides=None, **given):
    return ask("sandbox-density", ROW | given, overrides).answer


@pytest.mark.proves("S114")
def test_50000_sessions_of_261_mb_need_15_hosts_of_900_gb_with_the_cpu_bound_beside():
    answer = sandboxes(FIVE_MB, active_share="0.05", host_cores="192", cores_share="0.8")
    assert answer.values["hosts_by_memory"].value == 15
    assert answer.values["hosts_by_cpu"].value == 17  # 2,500 cores of 153.6 a host
    assert answer.values["hosts"].value == 17
    assert "{hosts_by_cpu}" in answer.says


@pytest.mark.proves("S114")
def test_every_level_has_hosts_and_start_and_whether_it_takes_a_gpu():
    rows = {row["isolation"]: row for row in sandboxes().table}
    assert set(rows) == {"container", "gvisor", "microvm", "vm"}
    assert rows["microvm"]["start"].to("ms") == pytest.approx(125)
    assert rows["microvm"]["GPU"] == "no"
    assert rows["vm"]["hosts"].value > rows["microvm"]["by memory"].value


def test_sessions_with_a_gpu_go_to_a_level_that_takes_one():
    answer = sandboxes(gpu_share="0.02", sessions_per_gpu="7", host_gpus="8")
    assert answer.values["gpu_hosts"].value == 18  # 1,000 sessions of 56 a host
    assert any("vm for what needs a GPU" in note for note in answer.notes)
    assert answer.values["hosts"].value == 16 + 18


def test_idle_sessions_of_512_mib_fill_17_hosts_of_1_5_tib():
    answer = sandboxes(
        guest_bytes="512 MiB", host_bytes="1.5 TiB", memory_share="1", active_share="0"
    )
    assert answer.values["hosts"].value == 17


def test_a_session_larger_than_a_host_is_refused():
    with pytest.raises(SpecError) as caught:
        sandboxes(guest_bytes="1 TB")
    assert caught.value.where == "guest"
