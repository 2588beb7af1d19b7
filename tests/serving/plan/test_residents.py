"""Which models stay in memory."""

from itertools import combinations, permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import SpecError
from ridgeline.serving.plan.residents import Machines, Packing, Served, first_fit, pack, taken_tail

GB = 1e9


def served(name: str, size_gb: float, rate_hz: float) -> Served:
    return Served(name, size_gb * GB, rate_hz, 2 + size_gb / 5)


def names(packing: Packing) -> set[str]:
    return {one.name for some in packing.resident for one in some}


def test_what_all_fits_stays_and_nothing_is_started():
    packing = pack([served("a", 40, 0.01), served("b", 30, 0.01)], Machines(1, 72 * GB))
    assert names(packing) == {"a", "b"}
    assert (packing.starts_per_s, packing.on_demand) == (0.0, ())


def every_way(models: list[Served], machines: Machines) -> list[float]:
    """Starts of all subsets that fit on some accelerators, the rest on demand on the others."""
    found = []
    for count in range(len(models) + 1):
        for staying in combinations(models, count):
            rest = [one for one in models if one not in staying]
            for order in permutations(staying):
                # First-fit finds a way to place them in one of their orders, if there is one.
                try:
                    packing = first_fit([*order, *rest], machines)
                except SpecError:
                    continue
                found.append(packing.starts_per_s)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_of_few_models_it_finds_the_best_of_all_ways(seed):
    chance = Random(seed)
    models = [
        served(f"m{n}", chance.choice([14, 28, 40, 65]), 10 ** chance.uniform(-5, -2))
        for n in range(5)
    ]
    machines = Machines(3, 72 * GB, 1.0)
    assert pack(models, machines).starts_per_s <= min(every_way(models, machines)) * (1 + 1e-9)


def test_neither_the_busiest_nor_the_rarest_stays_but_who_is_in_between():
    """Where they must share, who is asked for all the time hardly ever stops by himself."""
    some = [served("busy", 60, 0.2), served("rare", 60, 1e-6), served("between", 60, 0.002)]
    others = [served(f"rare{n}", 60, 1e-6) for n in range(3)]
    packing = pack([*some, *others], Machines(3, 72 * GB))
    assert names(packing) <= {"busy", "between"}


def test_errors_name_the_model_or_ask_for_one_more():
    with pytest.raises(SpecError, match="big has 100 GB"):
        pack([served("big", 100, 1.0)], Machines(4, 72 * GB))
    busy = [served(f"m{n}", 60, 0.05) for n in range(6)]
    with pytest.raises(SpecError, match="would wait for each other"):
        pack(busy, Machines(2, 72 * GB))


@given(st.lists(st.floats(0, 1), max_size=6), st.integers(0, 7))
def test_all_taken_as_by_counting_every_case(shares, places):
    counted = 0.0
    for count in range(places, len(shares) + 1):
        for some in combinations(range(len(shares)), count):
            chance = 1.0
            for place, share in enumerate(shares):
                chance *= share if place in some else 1 - share
            counted += chance
    assert taken_tail(shares, places) == pytest.approx(counted, abs=1e-9)


@given(
    st.lists(
        st.tuples(st.sampled_from([8, 14, 28, 40, 65]), st.floats(1e-5, 0.02)),
        min_size=1,
        max_size=7,
    ),
    st.integers(1, 5),
)
def test_a_packing_fits_has_everybody_once_and_is_no_worse_than_first_fit(some, count):
    models = [served(f"m{n}", *one) for n, one in enumerate(some)]
    machines = Machines(count, 72 * GB, 1.0)
    try:
        packing = pack(models, machines)
    except SpecError:
        with pytest.raises(SpecError):
            first_fit(models, machines)
        return
    there = [one for accelerator in packing.resident for one in accelerator]
    assert sorted(one.name for one in [*there, *packing.on_demand]) == sorted(
        one.name for one in models
    )
    assert len(packing.resident) + packing.shared == count
    for accelerator in packing.resident:
        assert sum(one.weights_bytes for one in accelerator) <= machines.room_bytes
    try:
        plain = first_fit(models, machines)
    except SpecError:
        return
    assert packing.starts_per_s <= plain.starts_per_s * (1 + 1e-9)
