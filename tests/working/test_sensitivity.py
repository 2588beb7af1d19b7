import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.working.data import sensitivity_data
from ridgeline.working.lines import length, plain
from ridgeline.working.sensitivity import sensitivity
from ridgeline.working.tornado_text import sensitivity_lines


def swings(found):
    return {one.name: one for one in found.swings}


def test_inputs_and_catalog_values_are_varied_by_a_tenth(pump):
    found = swings(sensitivity(pump))
    assert set(found) == {"size_bytes", "pump-9.rate_bytes_per_s"}
    assert found["size_bytes"].size == pytest.approx(0.8)
    assert found["pump-9.rate_bytes_per_s"].high.result.value == pytest.approx(4 / 1.1)


def test_what_counts_parts_is_not_moved_and_that_is_said(pump):
    found = sensitivity(pump)
    assert found.fixed == ["rounds"]
    assert sensitivity_data(found)["not_moved"] == ["rounds"]
    assert "from them: rounds" in plain(sensitivity_lines(found))


def test_a_mixture_is_not_contradicted_and_nothing_built_in_pieces_moves_by_a_tenth():
    topics()
    found = sensitivity("training-layout", {"model": "deepseek-v3"})
    names = {one.name.rpartition(".")[2] for one in found.swings} | set(found.still)
    assert names.isdisjoint({"params", "active_params", "experts", "layers", "heads", "matrices"})
    assert {"params", "experts", "layers"} <= {one.rpartition(".")[2] for one in found.fixed}
    for one in (*found.swings, *found.fixed):
        name = getattr(one, "name", one)
        if name.endswith("_parallel"):
            assert one.range == "half, double"


def test_the_parameters_of_a_dense_model_are_moved():
    topics()
    assert "llama-3.1-70b.params" in swings(sensitivity("users-per-node"))


def test_the_largest_swing_is_first_and_what_moves_nothing_is_named(pump):
    found = sensitivity(pump)
    assert [one.size for one in found.swings] == sorted(
        (s.size for s in found.swings), reverse=True
    )
    assert {"spare", "share", "delay_s", "batch"} <= set(found.still)


def test_an_input_with_an_interval_is_varied_by_it_and_that_is_said(pump):
    one = swings(sensitivity(pump, value="used"))["share"]
    assert (one.low.input.value, one.high.input.value, one.range) == (0.4, 0.9, "interval")
    assert (one.low.result.value, one.high.result.value) == pytest.approx((1.6, 3.6))
    assert "share (interval)" in plain(sensitivity_lines(sensitivity(pump, value="used")))


def test_a_count_moves_by_one_at_least(pump):
    one = swings(sensitivity(pump, {"batch": "12"}))["batch"]
    assert (one.low.input.value, one.high.input.value, one.range) == (11, 13, "±1")
    one = swings(sensitivity(pump, {"batch": "64"}))["batch"]
    assert (one.low.input.value, one.high.input.value, one.range) == (58, 70, "±10 %")


def test_a_bound_is_not_crossed(pump):
    one = swings(sensitivity(pump, {"batch": "1000"}))["batch"]
    assert one.high.input.value == 1000


def test_a_value_that_is_not_there_is_refused_with_those_that_are(pump):
    with pytest.raises(SpecError) as caught:
        sensitivity(pump, value="nothing")
    assert "total_s" in caught.value.remedy


def test_data_and_text_say_the_same(pump):
    found = sensitivity(pump)
    data = sensitivity_data(found)
    text = plain(sensitivity_lines(found))
    assert [one["name"] for one in data["swings"]] == [one.name for one in found.swings]
    assert all(one["name"].rsplit(".", 1)[-1] in text for one in data["swings"])
    assert max(length(line) for line in sensitivity_lines(found)) <= 80
