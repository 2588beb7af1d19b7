"""Accelerators: every value with its source, and what sources disagree on as an interval."""

import pytest

from ridgeline.catalog.accelerators import accelerator, accelerators, dtype_bytes
from ridgeline.catalog.rows import overlay
from ridgeline.errors import CatalogError
from ridgeline.quantity import Provenance, overriding, set_to

ORIGIN = {"source": "a test", "read_on": "2026-11-30"}


def test_what_is_sold_and_what_drivers_report_are_told_apart():
    one = accelerator("h100")
    assert one.sold_bytes.value == 80 * 2**30
    assert one.memory_bytes.value == 81_559 * 2**20
    assert one.memory_bytes.note == "as the driver reports it"
    assert accelerator("mi300x").memory_bytes.note == "capacity sold"


@pytest.mark.parametrize(("name", "mebibytes"), [("h200", 143_771), ("b200", 183_359)])
def test_reported_memory_is_what_nvidia_smi_prints(name, mebibytes):
    assert accelerator(name).memory_bytes.value == mebibytes * 2**20
    assert "nvidia-smi" in accelerator(name).memory_bytes.source


def test_what_sources_disagree_on_is_an_interval_with_a_reason():
    rate = accelerator("b200").memory_bytes_per_s
    assert rate.value == 7.7e12
    assert rate.interval == (7.7e12, 8.0e12)
    assert "HGX" in rate.note
    assert accelerator("b200").flop_per_s("fp32").interval == (75e12, 80e12)
    assert accelerator("b300").flop_per_s("fp4").interval == (13.5e15, 15e15)
    assert accelerator("h100").memory_bytes_per_s.interval is None


def test_what_is_only_announced_says_so():
    assert "announced" in accelerator("rubin").memory_bytes_per_s.note
    assert "announced" in accelerator("mi455x").memory_bytes.note


def test_what_is_recalled_counts_as_assumed():
    assert accelerator("h100-nvl").memory_bytes.provenance is Provenance.ASSUMED
    assert accelerator("h100").memory_bytes.provenance is Provenance.DATASHEET


def test_links_are_one_direction():
    assert accelerator("h100").link_bytes_per_s.value == 450e9
    assert accelerator("h100").nic_bytes_per_s.value == 50e9


def test_a_price_is_a_median_with_its_range_and_its_dates():
    price = accelerator("h100").price_usd_per_s
    assert price.to("USD/h") == pytest.approx(2.95)
    assert price.interval == pytest.approx((2.29 / 3600, 6.88 / 3600))
    assert "2026 to 2026-05-20" in price.note
    with pytest.raises(CatalogError, match="no on-demand price"):
        _ = accelerator("gh200").price_usd_per_s


def test_a_price_of_ones_own_names_no_seller_of_ours():
    mine = {
        "id": "gh200",
        "prices_usd_per_accelerator_hour": [{"kind": "on_demand", "usd_per_hour": 2}],
    }
    with overlay({"accelerators": [ORIGIN | mine]}):
        price = accelerator("gh200").price_usd_per_s
    assert price.to("USD/h") == pytest.approx(2)
    assert "a test" in price.source


def test_a_type_that_a_device_lacks_is_refused_with_those_it_has():
    with pytest.raises(CatalogError, match="has no units for fp8") as raised:
        accelerator("a100").flop_per_s("fp8")
    assert "bf16" in raised.value.remedy


def test_packed_types_run_at_the_rate_of_what_they_unpack_to():
    b200 = accelerator("b200")
    assert b200.flop_per_s("nvfp4").value == b200.flop_per_s("fp4").value
    assert b200.flop_per_s("int4-g32").value == b200.flop_per_s("bf16").value
    assert dtype_bytes("int4-g32").value == 0.5625


@pytest.mark.parametrize("name", [one.id for one in accelerators()])
def test_every_value_can_be_set_by_its_name(name):
    with overriding({"memory_bytes": set_to("1 GB"), "memory_bytes_per_s": set_to("1 TB/s")}):
        assert accelerator(name).memory_bytes.value == 1e9
        assert accelerator(name).memory_bytes_per_s.value == 1e12


def test_what_is_not_known_says_what_to_do():
    with pytest.raises(CatalogError, match="tdp_w of TPU v5e is not known") as raised:
        _ = accelerator("tpu-v5e").tdp_w
    assert raised.value.where == "tpu-v5e.tdp_w"
