"""The catalog agrees with itself, and what does not agree is found."""

import pytest

from ridgeline.catalog.check import findings, recounts
from ridgeline.catalog.rows import overlay

ORIGIN = {"source": "a test", "read_on": "2026-11-30"}


def with_row(kind, **fields):
    return overlay({kind: [{**ORIGIN, **fields}]})


def test_our_catalog_passes():
    assert findings() == []
    assert [one.id for one in recounts() if not one.ok] == []


def test_most_models_are_counted_to_the_last_parameter():
    assert sum(one.exact for one in recounts()) == 39


def test_a_model_more_than_two_percent_off_fails():
    with with_row("models", id="qwen3-8b", published={"total": 8_190_735_360 * 100 // 97}):
        wrong = next(one for one in recounts() if one.id == "qwen3-8b")
    assert not wrong.ok
    assert wrong.difference == pytest.approx(-0.03)


def test_a_model_that_lacks_a_field_is_a_finding_and_not_a_crash():
    row = {
        "id": "mine", "name": "Mine", "layers": 2, "hidden": 8, "heads": 2, "kv_heads": 2,
        "head_dim": 4, "vocab": 10, "attention": {"kind": "mha"},
    }  # fmt: skip
    with with_row("models", **row):
        assert [one.problem for one in findings()] == ["cannot be counted without intermediate"]
        assert "mine" not in [one.id for one in recounts()]


@pytest.mark.parametrize(
    ("kind", "fields", "problem"),
    [
        ("models", {"id": "qwen3-8b", "params_total": 8}, "8, but the architecture has 8,190"),
        ("models", {"id": "qwen3-8b", "kv_cache": {"bytes_per_token_bf16": 1}}, "147,456"),
        ("models", {"id": "gpt-oss-20b", "attention": {"layer_mix": {"gqa": 13}}}, "add up to 24"),
        (
            "accelerators",
            {"id": "l4", "interconnect": {"per_direction_bytes_per_s": 63e9}},
            "not twice",
        ),
        ("accelerators", {"id": "l4", "mig_max_instances": 5}, "4 or 7"),
        ("accelerators", {"id": "l4", "memory": {"driver_reported_bytes": 30e9}}, "more than"),
        ("accelerators", {"id": "l4", "flops_dense": {"fp8": 1e12}}, "fp8 is slower than bf16"),
        ("accelerators", {"id": "l4", "memory_bandwidth_bytes_per_s": 5e12}, "a ridge of 24"),
        ("accelerators", {"id": "h100-sxm", "measured": {"matmul_bf16_flops": 1e15}}, "faster"),
        ("accelerators", {"id": "b200-sxm", "memory_bandwidth_bytes_per_s": 9e12}, "own doubt"),
        ("accelerators", {"id": "tpu-v5e", "interconnect": {"links": 3}}, "3 links of"),
        ("network", {"id": "connectx-7", "max_w": 20}, "more than its maximum"),
        ("network", {"id": "quantum-2-qm9700", "ports": 32}, "more than the whole"),
    ],
)
def test_numbers_that_contradict_are_found(kind, fields, problem):
    with with_row(kind, **fields):
        found = findings()
    assert [one for one in found if problem in one.problem and one.where.startswith(fields["id"])]
