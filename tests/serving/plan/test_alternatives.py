"""Other accelerators: break-even MFU, losing bandwidth, and what to measure first."""

import pytest

from ridgeline.errors import CatalogError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

EQUAL = {
    "trainium2.node_price_usd_per_s": "50USD/h",
    "h100-sxm.node_price_usd_per_s": "50USD/h",
}


@pytest.mark.proves("S004")
def test_at_equal_price_a_trn2_node_breaks_even_at_29_7_percent_mfu():
    asked = ask("node-economics", {"reference_mfu": "0.4"}, EQUAL)
    values = asked.answer.values
    assert values["flop_ratio"].value == pytest.approx(1.35, rel=0.01)
    assert values["break_even_mfu"].value == pytest.approx(0.297, rel=0.01)


@pytest.mark.proves("S004")
def test_at_the_break_even_both_useful_flops_cost_the_same():
    even = ask("node-economics", {}, EQUAL).answer.values["break_even_mfu"].value
    at = ask("node-economics", {"mfu": repr(even)}, EQUAL).answer.values
    cost, other = at["usd_per_useful_flop"].value, at["reference_usd_per_useful_flop"].value
    assert cost == pytest.approx(other, rel=1e-9)
    assert other == pytest.approx(50 / 3600 / (8 * 989.4e12 * 0.4), rel=1e-6)
    assert ask("node-economics", {"mfu": repr(even * 1.01)}, EQUAL).answer.ok
    assert not ask("node-economics", {"mfu": repr(even * 0.99)}, EQUAL).answer.ok


def test_an_accelerator_without_a_price_says_how_to_set_one():
    with pytest.raises(CatalogError, match="no on-demand price"):
        ask("node-economics", {"accelerator": "tpu-v7"})


@pytest.mark.proves("S005")
def test_at_equal_price_63_percent_of_h100s_achieved_fraction_is_the_losing_point():
    answer = ask("adopt-accelerator", {"price_ratio": "1", "reference_achieved": "0.86"}).answer
    assert answer.values["losing_fraction"].value == pytest.approx(0.63, rel=0.01)
    losing = answer.values["losing_achieved"].value
    assert losing == pytest.approx(0.86 * 3.35 / 5.3, rel=1e-6)
    at = {"achieved": repr(losing), "mfu": "0.9"}
    assert ask("adopt-accelerator", at).answer.values["decode_cost_ratio"].value == pytest.approx(1)
    assert ask("adopt-accelerator", at | {"achieved": repr(losing + 0.01)}).answer.ok
    assert not ask("adopt-accelerator", at | {"achieved": repr(losing - 0.01)}).answer.ok


@pytest.mark.proves("S005")
def test_at_least_five_measurements_come_first_each_with_its_bar_and_reason():
    table = ask("adopt-accelerator", {}).answer.table
    assert len({row["measure"] for row in table}) >= 5
    assert all(row["because"] and row["against"].value > 0 for row in table)
    assert table[0]["against"].to("TB/s") == pytest.approx(0.86 * 3.35, rel=1e-6)


@pytest.mark.proves("S005")
def test_a_missing_kernel_is_no_go_whatever_the_ratios():
    answer = ask("adopt-accelerator", {"has_paged_attention": "no", "price_ratio": "0.5"}).answer
    assert not answer.ok
    assert answer.says.startswith("No go")
    assert "paged attention" in answer.says


def test_a_pair_of_mi300x_gets_one_link_of_seven():
    rows = {row["measure"]: row for row in ask("adopt-accelerator", {}).answer.table}
    assert rows["bytes/s of one pair of devices"]["against"].to("GB/s") == 64
