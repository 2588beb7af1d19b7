"""Others' scaling formulas, by hand and as laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.scale import Look, Settings
from ridgeline.serving.policy.scale_rules import RULES, hpa, keda, kpa, ray

NS = 1_000_000_000
SETTINGS = Settings(0, 50, 10.0)


def look(
    at_s: float, running: int, *, waiting: int = 0, queued: int = 0, replicas: int = 2
) -> Look:
    return Look(round(at_s * NS), running, waiting, queued, replicas, replicas)


def steady(until_s: float, running: int, **more) -> list[Look]:
    """A look every two seconds."""
    return [look(2.0 * n, running, **more) for n in range(int(until_s / 2) + 1)]


def test_kpa_takes_the_mean_of_a_minute():
    """24 for 30 s of 60, then 36: 30 on average, three of 10."""
    looks = [look(2.0 * n, 24 if n <= 15 else 36, replicas=3) for n in range(1, 31)]
    assert kpa(looks, SETTINGS, 0).replicas == 3
    assert kpa(steady(120, 51, replicas=5), SETTINGS, 0).replicas == 6


def test_kpa_panics_at_twice_what_is_ready_and_does_not_shrink_then():
    looks = [*steady(60, 20), *(look(60 + 2.0 * n, 45) for n in range(1, 4))]
    decided = kpa(looks, SETTINGS, 0)
    assert decided.replicas == 5
    assert "panic" in decided.reason
    after = [*looks, *(look(66 + 2.0 * n, 10, replicas=5) for n in range(1, 10))]
    assert kpa(after, SETTINGS, 0).replicas == 5
    later = [*after, *(look(84 + 2.0 * n, 10, replicas=5) for n in range(1, 40))]
    assert kpa(later, SETTINGS, 0).replicas == 2, "half of what is ready at most in one step"


def test_kpa_goes_to_zero_after_a_quiet_minute_and_its_grace():
    quiet = [look(0, 5), *(look(2.0 * n, 0, replicas=1) for n in range(1, 50))]
    assert kpa(quiet[:40], SETTINGS, 0).replicas == 1
    assert kpa(quiet, SETTINGS, 0).replicas == 0


def test_ray_waits_half_a_minute_to_grow_and_ten_to_shrink():
    grows = [*steady(60, 20), *(look(60 + 2.0 * n, 60) for n in range(1, 40))]
    assert ray(grows[:36], SETTINGS, 0).replicas == 2, "not yet for 30 s"
    assert ray(grows, SETTINGS, 0).replicas == 6
    shrinks = steady(640, 10, replicas=4)
    assert ray(shrinks[:290], SETTINGS, 0).replicas == 4
    assert ray(shrinks, SETTINGS, 0).replicas == 1
    assert ray([look(0, 0, queued=1, replicas=0)], SETTINGS, 0).replicas == 1, "at once"


def test_hpa_is_a_ratio_with_a_tolerance():
    """Kubernetes' example: 200m of 100m doubles; within a tenth nothing changes."""
    assert hpa([look(0, 40)], SETTINGS, 0).replicas == 4
    assert hpa([look(0, 21)], SETTINGS, 0).replicas == 2
    assert hpa([look(0, 23)], SETTINGS, 0).replicas == 3
    assert hpa([look(0, 400)], SETTINGS, 0).replicas == 6, "four pods more at most in 15 s"
    assert hpa([look(0, 400, replicas=20)], SETTINGS, 0).replicas == 40, "or as many again"
    assert hpa([look(0, 0)], SETTINGS, 0).replicas == 1, "never to zero"
    assert hpa([look(0, 40), look(2, 400)], SETTINGS, 0).replicas == 2, "between two syncs"


def test_hpa_goes_down_to_the_most_of_five_minutes():
    looks = [look(0, 60, replicas=6), *(look(2.0 * n, 10, replicas=6) for n in range(1, 190))]
    assert hpa(looks[:151], SETTINGS, 0).replicas == 6
    at_360 = looks[:181]
    assert hpa(at_360, SETTINGS, 0).replicas == 1


def test_hpa_holds_where_a_metric_is_missing_and_keda_takes_it_for_nothing():
    blind = [Look(0, None, None, 30, 4, 4)]
    assert hpa(blind, SETTINGS, 0).replicas == 4
    assert keda([*steady(600, 50, replicas=4)[:-1], Look(600 * NS, None, None, 30, 4, 4)],
                SETTINGS, 0).replicas == 0  # fmt: skip


def test_keda_counts_who_waits_and_sees_nobody_who_runs():
    assert keda([look(0, 100, waiting=11)], SETTINGS, 0).replicas == 3
    busy = steady(600, 100, replicas=4)
    assert keda(busy, SETTINGS, 0).replicas == 0, "to zero, while a hundred run"
    assert keda([look(0, 0, queued=2, replicas=0)], SETTINGS, 0).replicas == 1


@st.composite
def looks(draw) -> list[Look]:
    found, at_ns = [], 0
    for _ in range(draw(st.integers(1, 40))):
        at_ns += draw(st.sampled_from([1, 2, 15, 60])) * NS
        known = draw(st.booleans()) or draw(st.booleans())
        replicas = draw(st.integers(0, 12))
        found.append(
            Look(
                at_ns,
                draw(st.integers(0, 100)) if known else None,
                draw(st.integers(0, 50)) if known else None,
                draw(st.integers(0, 50)),
                replicas,
                draw(st.integers(0, replicas)),
            )
        )
    return found


@pytest.mark.parametrize("name", RULES)
@given(seen=looks(), least=st.integers(0, 3), most=st.integers(3, 9), floor=st.integers(0, 9))
def test_every_rule_keeps_the_bounds_and_says_why(name, seen, least, most, floor):
    settings = Settings(least, most, 4.0)
    decided = RULES[name].decide(seen, settings, floor)
    assert min(max(least, floor), most) <= decided.replicas <= most
    assert decided.reason
    assert decided == RULES[name].decide(seen, settings, floor)
