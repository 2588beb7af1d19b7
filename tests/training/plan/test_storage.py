"""Storage of a run: the token stream against the checkpoint burst."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


@pytest.mark.proves("S092")
def test_a_16k_gpu_70b_run_reads_61_mb_per_s_of_ids_and_writes_83_gb_per_s_of_checkpoint():
    asked = ask(
        "training-storage",
        {"gpus": 16384, "mfu": "0.4", "id_bytes_per_token": "4 B/token", "write_s": "60s"},
        {
            "active_params": "70.6B",
            "checkpoint_bytes": "5TB",
            "bf16_flop_per_s": "989 TFLOP/s",
        },
    )
    values = asked.answer.values
    assert values["stream_bytes_per_s"].value == pytest.approx(61.2e6, rel=0.01)
    assert values["burst_bytes_per_s"].value == pytest.approx(83.3e9, rel=0.01)
    assert values["burst_over_stream"].value == pytest.approx(1362, rel=0.01)
    assert [row["tier"] for row in asked.answer.table] == [
        "local NVMe",
        "shared file system",
        "object store",
    ]


def test_a_local_write_is_each_nodes_share_over_its_own_disks():
    values = ask("training-storage", {"kept_bytes": "16 B"}, {"params": "405.85B"}).answer.values
    assert values["checkpoint_bytes"].value == pytest.approx(6.494e12, rel=0.001)
    assert values["local_write_s"].value == pytest.approx(0.634, rel=0.01)


def test_replicas_that_each_read_their_copy_multiply_the_restore():
    values = ask("training-storage", {"replicas": 128}).answer.values
    one, all_of_them = values["restore_bytes_per_s"], values["restore_all_bytes_per_s"]
    assert all_of_them.value == pytest.approx(128 * one.value)


def test_the_shared_tier_is_as_fast_as_the_drain_and_the_restore_need():
    for restore in ("300s", "1000h"):
        asked = ask("training-storage", {"restore_s": restore})
        values, shared = asked.answer.values, asked.answer.table[1]["rate"].value
        needed = (values["drain_bytes_per_s"].value, values["restore_bytes_per_s"].value)
        assert shared == max(needed)
