"""Blackwell against Hopper, with the ledger's inputs."""

import pytest

from ridgeline.errors import CatalogError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

TOPIC = "accelerator-generations"
#: The row counts 671e9 parameters and 180e9 bytes a B200.
LEDGER = {"b200-sxm.memory_bytes": "180GB", "params": "671B"}
ANNOUNCED = LEDGER | {"b200-sxm.memory_bytes_per_s": "8TB/s"}


def value(name, given=None, sets=None):
    return ask(TOPIC, given or {}, LEDGER if sets is None else sets).answer.values[name].value


@pytest.mark.proves("S001")
def test_deepseek_v3_in_nvfp4_is_377_gb_and_takes_three_b200s_so_degree_four():
    asked = ask(TOPIC, {"batch": "1", "context": "8k"}, LEDGER)
    values = asked.answer.values
    assert values["weights_bytes"].to("GB") == pytest.approx(377.4, rel=0.001)
    assert values["devices"].value == 3
    assert values["tensor_parallel"].value == 4
    assert values["experts_per_device"].value == 32


@pytest.mark.proves("S001")
def test_blackwell_has_2_27_times_the_compute_and_2_39_of_the_bandwidth_as_announced():
    assert value("compute_ratio") == pytest.approx(2.27, rel=0.01)
    assert value("bandwidth_ratio", sets=ANNOUNCED) == pytest.approx(2.39, rel=0.01)
    assert value("bandwidth_ratio") == pytest.approx(2.30, rel=0.01)  # HGX, 7.7 TB/s


def test_a_step_reads_only_the_experts_that_its_tokens_visit():
    """By hand: 671e9 x 4.5 bits less 58 layers of experts that nobody of 32 visits.

    The round 671e9 is the same shape in another size than the row's 671,026,419,200.
    """
    routed = 58 * 256 * 3 * 7168 * 2048 * 671e9 / 671_026_419_200
    idle = (1 - 8 / 256) ** 32
    read = (671e9 - routed * idle) * 4.5 / 8
    assert value("read_s", {"batch": "32"}) == pytest.approx(read / (4 * 7.7e12), rel=1e-9)


def test_a_domain_of_72_leaves_four_experts_a_device_instead_of_32():
    given = {"accelerator": "gb200"}
    assert value("experts_per_device", given, {}) == 4


def test_hopper_is_refused_for_nvfp4():
    with pytest.raises(CatalogError, match="has no units for nvfp4"):
        ask(TOPIC, {"previous_dtype": "nvfp4"})


def test_a_dense_model_has_no_experts_to_place():
    answer = ask(TOPIC, {"model": "llama-3.1-70b", "dtype": "fp8"}).answer
    assert "experts_per_device" not in answer.values
    assert answer.values["devices"].value == 1
