import re

import pytest

from ridgeline.errors import SpecError
from ridgeline.quantity import Quantity, given
from ridgeline.topics import ask
from ridgeline.units import parse_unit
from ridgeline.working.lines import length, plain
from ridgeline.working.why import found, why


def tree(asked, name="total_s"):
    return plain(why(asked.answer.values[name], name))


def test_a_tree_says_formula_value_source_and_what_bound(pump):
    text = tree(ask(pump))
    assert "step_s = max(flow_s, computing_s)" in text
    assert "moving binds: 4 s; computing 2 s" in text
    assert "since not there is an extra round; otherwise 5 s" in text
    assert "data sheet of Pump 9 (catalog) [" in text


def test_the_branch_that_lost_is_shown_with_its_value(pump):
    asked = ask(pump, {"batch": "20"})
    assert "computing binds: 10 s; moving 4 s" in tree(asked)


def test_each_source_is_printed_once_below_the_tree(pump):
    text = tree(ask(pump))
    assert text.count("a made-up law whose source") == 1
    assert text.count("page 4") == 1
    above, _, below = text.partition("\n\n")
    assert "[1]" in above
    assert below.startswith("[1] ")


def test_a_subtree_is_shown_once_and_named_after():
    x = (given(2.0, "", name="input", source="s") * 3).named("x")
    text = plain(why((x + (x * 4).named("z")).named("y")))
    assert text.count("x = input × 3") == 1
    assert text.count("input 2") == 1
    assert re.search(r"x +6 \(above\)", text)


def test_bytes_are_exact_beside_their_rounded_form(pump):
    asked = ask(pump, {"size": "4 GiB"})
    assert "size_bytes 4 GiB" in tree(asked)
    sized = (given(2_684_354_560, "B", name="size") * 1).named("all_bytes")
    assert "2.684 GB (2,684,354,560 B)" in plain(why(sized))


def test_what_was_set_says_so_and_what_it_replaced(pump):
    text = tree(ask(pump, {}, {"rate_bytes_per_s": "4 GB/s"}))
    assert "rate_bytes_per_s 4 GB/s" in text
    assert "you, instead of 2 GB/s" in text


def test_inputs_of_one_origin_share_a_line():
    layers, heads = (
        given(n, "", name=f"m.{name}", provenance="published", source="M: a config")
        for n, name in ((80, "layers"), (8, "kv_heads"))
    )
    assert "layers 80, kv_heads 8" in plain(why((layers * heads).named("product")))


def test_a_tree_fits_100_columns_however_long_its_names_are():
    parts = [
        given(1.0, "", name=f"a_rather_long_name_of_part_{i}", source="here") for i in range(9)
    ]
    lines = why(sum(parts, start=parts[0]).named("sum_of_parts"))
    assert max(length(line) for line in lines) <= 100


def test_a_sum_of_many_parts_is_cut_and_says_how_many_more():
    parts = [(given(1.0, "", name=f"p{i}", source="s") * 2).named(f"part_{i}") for i in range(500)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    text = plain(why(total.named("total")))
    assert len(text.splitlines()) < 120
    assert "more of this kind" in text
    assert "more)" in text


def test_a_chain_deeper_than_pythons_stack_is_shown_as_far_as_it_is_readable():
    step = given(1.0, "", name="start", source="s")
    for index in range(3000):
        step = (step * 2 / 2).named(f"step_{index}")
    assert "deeper: --why" in plain(why(step))


def test_a_name_that_is_nowhere_gets_the_nearest(pump):
    with pytest.raises(SpecError) as caught:
        found(ask(pump), "stp_s")
    assert caught.value.where == "--why"
    assert "step_s" in caught.value.remedy


def test_a_name_may_lack_its_unit(pump):
    assert [step.name for step in found(ask(pump), "step")] == ["step_s"]


def test_a_sweeps_tree_says_the_range_and_all_that_bound(pump):
    import numpy as np

    batch = Quantity(np.array([1.0, 20.0]), parse_unit("steps"), name="batch")
    text = tree(ask(pump, {"batch": batch}))
    assert "4 ... 10 s" in text
    assert "moving then computing" in text
