"""Replicas follow the demand: up at once and in steps, down slowly, never on what was not seen."""

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.scale import (
    Look,
    Settings,
    Step,
    average_value,
    remembered,
    scale,
    utilisation,
    warm_pool,
)

NS = 1_000_000_000
SETTINGS = Settings(
    least=1, most=12, per_replica=4, up=Step(2, 120), down_after_s=60, zero_after_s=120
)
TO_ZERO = replace(SETTINGS, least=0)


def look(at_s: float, replicas: int, demand: int | None = 0, queued: int = 0) -> Look:
    waiting = None if demand is None else 0
    return Look(round(at_s * NS), demand, waiting, queued, replicas, replicas)


def steady(until_s: float, replicas: int, demand: int | None, since_s: float = 0.0) -> list[Look]:
    seconds = range(int(since_s), int(until_s) + 1, 5)
    return [look(second, replicas, demand) for second in seconds]


@pytest.mark.proves("S188")
@pytest.mark.parametrize(
    ("waiting", "wanted"), [(20, 5), (0, 2), (4, 2), (8, 2), (9, 3), (21, 6), (48, 12), (49, 12)]
)
def test_20_waiting_at_threshold_4_ask_for_5_bounded_to_2_and_12(waiting, wanted) -> None:
    assert average_value(waiting, 4, 2, 12) == wanted
    settings = replace(SETTINGS, least=2, up=Step(12, 1), down_after_s=0)
    seen = Look(0, 0, waiting, 0, 2, 2)
    assert scale([seen], settings).replicas == wanted


@pytest.mark.parametrize(
    ("now", "metric", "target", "wanted"),
    [
        (2, 200, 100, 4),
        (4, 50, 100, 2),
        (4, 105, 100, 4),
        (4, 91, 100, 4),
        (3, 0, 100, 1),
        (10, 300, 100, 12),
    ],
)
def test_kubernetes_formula_with_its_tolerance(now, metric, target, wanted) -> None:
    assert utilisation(now, metric, target, 1, 12) == wanted


@pytest.mark.parametrize(("rate", "start_s", "wanted"), [(0, 60, 0), (0.05, 60, 3), (0.051, 60, 4)])
def test_the_warm_pool_is_littles_law(rate, start_s, wanted) -> None:
    assert warm_pool(rate, start_s) == wanted


def test_it_grows_in_steps_and_from_2_to_12_are_five_of_them_2_in_120_s() -> None:
    looks, replicas = [], 2
    for second in range(0, 1000, 5):
        looks.append(look(second, replicas, 48))
        replicas = scale(looks, SETTINGS).replicas
        if replicas == 12:
            break
    assert second == 480  # steps at 0, 120, 240, 360, 480 s
    assert "12" in scale(looks, SETTINGS).reason


def test_replicas_that_start_count_so_nobody_asks_twice() -> None:
    settings = replace(SETTINGS, up=Step(12, 120))
    looks = [look(0, 1, 20)]
    assert scale(looks, settings).replicas == 5
    for second in range(5, 60, 5):  # five are asked for, one serves
        looks.append(Look(second * NS, 4, 0, 16, 5, 1))
        assert scale(looks, settings).replicas == 5


def test_who_waits_at_the_gateway_is_demand_wherever_the_queue_is() -> None:
    for at_replicas in range(21):
        seen = Look(0, 0, at_replicas, 20 - at_replicas, 1, 1)
        assert scale([seen], replace(SETTINGS, up=Step(12, 120))).replicas == 5


def test_running_requests_are_demand_too() -> None:
    looks = [Look(second * NS, 16, 0, 0, 4, 4) for second in range(0, 500, 5)]
    assert scale(looks, TO_ZERO).replicas == 4


def test_down_goes_only_to_the_most_of_the_window() -> None:
    looks = [*steady(100, 5, 20), look(105, 5, 2), look(110, 5, 3)]
    assert scale(looks, SETTINGS).replicas == 5
    looks += steady(164, 5, 3, since_s=115)
    assert scale(looks, SETTINGS).replicas == 5
    looks += [look(170, 5, 2)]
    assert scale(looks, SETTINGS).replicas == 1


def test_a_controller_that_just_began_takes_nothing_away() -> None:
    assert scale([look(0, 6, 0)], TO_ZERO).replicas == 6
    assert "not enough was seen" in scale([look(0, 6, 0)], TO_ZERO).reason


def test_to_zero_only_after_the_longer_time() -> None:
    assert scale(steady(65, 3, 0), TO_ZERO).replicas == 1
    assert scale(steady(115, 1, 0), TO_ZERO).replicas == 1
    assert scale(steady(125, 1, 0), TO_ZERO).replicas == 0
    one_request = [*steady(60, 1, 0), look(62, 1, 1), *steady(125, 1, 0, since_s=65)]
    assert scale(one_request, TO_ZERO).replicas == 1


def test_from_zero_at_once() -> None:
    looks = [*steady(100, 0, 0), Look(101 * NS, 0, 0, 1, 0, 0)]
    assert scale(looks, TO_ZERO).replicas == 1


def test_silence_is_not_zero() -> None:
    looks = [*steady(100, 5, 20), *steady(1000, 5, None, since_s=105)]
    assert scale(looks, TO_ZERO).replicas == 5
    assert scale(looks, TO_ZERO).reason.startswith("hold")
    queue = [*looks, Look(1001 * NS, None, None, 24, 5, 5)]
    assert scale(queue, TO_ZERO).replicas == 6
    seen_again = [*looks, *steady(1050, 5, 0, since_s=1001)]
    assert scale(seen_again, TO_ZERO).replicas == 5  # the silent time is still in the window


def test_a_schedule_raises_the_floor_and_never_passes_the_most() -> None:
    looks = steady(500, 1, 0)
    assert scale(looks, SETTINGS, floor=4).replicas == 4
    assert "schedule" in scale(looks, SETTINGS, floor=4).reason
    assert scale(looks, SETTINGS, floor=40).replicas == 12


demands = st.one_of(st.none(), st.integers(0, 100))


@given(
    seen=st.lists(
        st.tuples(st.floats(0.1, 300), demands, st.integers(0, 30)), min_size=1, max_size=40
    ),
    first=st.integers(0, 12),
    floor=st.integers(0, 20),
)
def test_it_stays_in_its_bounds_grows_no_faster_and_forgets_only_what_is_old(
    seen, first, floor
) -> None:
    looks, replicas, at_s = [], first, 0.0
    settings = replace(SETTINGS, least=0)
    for after_s, demand, queued in seen:
        at_s += after_s
        looks.append(look(at_s, replicas, demand, queued))
        decided = scale(looks, settings)
        assert 0 <= decided.replicas <= 12
        if decided.replicas > replicas:
            since = [one.replicas for one in looks if one.at_ns > looks[-1].at_ns - 120 * NS]
            assert decided.replicas - min(since) <= 2
        if demand is None:
            assert decided.replicas >= replicas
        kept = remembered(looks, settings, looks[-1].at_ns)
        assert scale(kept, settings) == decided
        bounded = scale(looks, settings, floor=floor).replicas
        assert min(floor, 12) <= bounded <= 12
        replicas = decided.replicas


def test_a_spare_by_littles_law_is_what_is_started_while_one_starts() -> None:
    """Demand that takes three more replicas in a minute, and starts of 60 s: three to spare."""
    auto = Settings(1, 50, 4.0, Step(10, 10.0), 60.0, 60.0, tolerance=0.0, spare=None, start_s=60.0)
    looks, replicas, spares = [], 2, []
    for second in range(0, 600, 5):
        demand = 8 + 4 * (second // 20)
        looks.append(look(second, replicas, demand))
        replicas = scale(looks, auto).replicas
        spares.append(replicas - ceil(demand / 4.0))
    assert spares[0] == 0
    assert set(spares[60:]) <= {3, 4}


def test_spare_replicas_are_there_though_the_others_serve_the_demand() -> None:
    settings = replace(SETTINGS, spare=2)
    assert scale([look(0, 2, 8)], settings).replicas == 4
    assert scale(steady(300, 4, 8), settings).replicas == 4
    assert scale(steady(300, 4, 0), settings).replicas == 1


def test_nothing_is_kept_to_spare_where_nothing_was_started_lately() -> None:
    auto = Settings(1, 50, 4.0, spare=None, start_s=60.0)
    looks = [look(second, 3, 12) for second in range(0, 900, 5)]
    assert scale(looks, auto).replicas == 3
