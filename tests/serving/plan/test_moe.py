"""Large mixtures of experts: what fits, what is read, how fast one user can be."""

import random

import pytest

from ridgeline.errors import CatalogError, SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import Asked, ask

topics()


def fit(memory: str, params: str, **given: str) -> Asked:
    return ask("moe-fit", given, {"memory_bytes": memory, "params": params})


def value(asked: Asked, name: str) -> float:
    return float(asked.answer.values[name].value)


def distinct_by_drawing(experts: int, top_k: int, batch: int, trials: int) -> float:
    draw = random.Random(7)
    seen = [
        len({one for _ in range(batch) for one in draw.sample(range(experts), top_k)})
        for _ in range(trials)
    ]
    return sum(seen) / trials


@pytest.mark.proves("S065")
def test_671_gb_do_not_fit_8_x_80_gb_but_8_h200_and_163_of_256_experts_are_read_at_batch_32():
    small = fit("80 GB", "671B", accelerator="h100-sxm", dtype="fp8", batch="32")
    large = fit("141 GB", "671B", accelerator="h200-sxm", dtype="fp8", batch="32")
    assert value(small, "weights_bytes") == pytest.approx(671e9)
    assert value(small, "weights_in_nodes") == pytest.approx(1.048, rel=0.01)
    assert not small.answer.ok
    assert value(small, "nodes_needed") == 2
    assert large.answer.ok
    assert value(large, "nodes_needed") == 1
    assert value(large, "experts_touched") == pytest.approx(163.3, rel=0.001)
    assert distinct_by_drawing(256, 8, 32, 400) == pytest.approx(163.3, rel=0.01)
    assert value(large, "kv_bytes_per_token") == 70_272
    assert value(large, "total_to_active") == pytest.approx(18.14, rel=0.02)


@pytest.mark.proves("S073")
def test_2_8_t_at_4_25_bits_are_1_49_tb_and_fit_8_x_288_gb_but_not_8_x_180_gb():
    given = {"model": "kimi-k3", "dtype": "mxfp4", "batch": "1", "accelerator": "b300-sxm"}
    large = fit("288 GB", "2.8T", **given)
    assert value(large, "weights_bytes") == pytest.approx(1.49e12, rel=0.01)
    assert value(large, "weights_in_nodes") == pytest.approx(0.6456, rel=0.01)
    assert large.answer.ok
    assert fit("256 GB", "2.8T", **given).answer.ok
    assert not fit("180 GB", "2.8T", **given).answer.ok
    # What one user can get at most: 8 devices read only the experts of one token.
    assert 8 * 8e12 / 1.49e12 < value(large, "alone_tokens_per_s") < 8 * 8e12 / 50e9
    assert 185e9 < value(large, "least_device_bytes") < 256e9


def test_the_smallest_node_that_fits_is_named():
    rows = ask("moe-fit", {"model": "kimi-k3", "dtype": "native"}).answer.table
    devices = {str(row["devices"]): row["fits"] for row in rows}
    assert any("B300" in name and fits == "yes" for name, fits in devices.items())
    assert not any("B200" in name for name in devices)
    assert [name[:4] for name, fits in devices.items() if fits == "no"] == ["H200"]


def test_a_step_reads_more_than_the_active_parameters_and_at_most_all():
    def read(batch: str) -> float:
        return value(ask("moe-fit", {"batch": batch}), "read_bytes")

    total = value(ask("moe-fit"), "weights_bytes")
    assert read("1") < 0.1 * total  # 8 experts of 256
    assert 0.6 * total < read("32") < 0.7 * total
    assert read("4096") == pytest.approx(total, rel=1e-6)


def test_two_nodes_halve_the_reads_of_each_device():
    one, two = (ask("moe-fit", {"nodes": n}) for n in ("1", "2"))
    assert value(one, "step_s") == pytest.approx(2 * value(two, "step_s"))


def test_a_dense_model_is_refused_and_so_is_a_type_the_device_lacks():
    with pytest.raises(SpecError, match="is dense") as error:
        ask("moe-fit", {"model": "llama-3.1-8b"})
    assert error.value.where == "model"
    with pytest.raises(CatalogError, match="mxfp4"):
        ask("moe-fit", {"dtype": "mxfp4", "accelerator": "h100-sxm"})
