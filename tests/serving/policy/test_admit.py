"""Whether one may queue: by the wait it would have, and by what the queue holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.admit import (
    Admit,
    Bounds,
    Meter,
    PoolRates,
    Queue,
    Refuse,
    admit,
    predicted_wait_s,
)
from ridgeline.serving.policy.fair import Ahead

RATES = PoolRates(10_000.0, 1_000.0, "the step-time model")
TOKENS = st.floats(0, 1e9)
AHEADS = st.builds(Ahead, TOKENS, TOKENS, TOKENS, TOKENS, st.floats(0, 1))


def asked(ahead: Ahead, queue: Queue | None = None, rates: PoolRates | None = RATES, **other):
    values = {"body_bytes": 0, "patience_s": 60.0, "bounds": Bounds(100, 1_000)}
    return admit(ahead, queue or Queue(), rates, **(values | other))


def test_it_queues_where_its_class_would_wait_so_long() -> None:
    answer = asked(Ahead(10_000, 9_000, 5_000, 10_000, 0.0))
    assert answer == Admit(20.5, "queues: 20.5 s of work (the step-time model) go before it")


def test_beyond_its_patience_it_is_told_when_to_come_again() -> None:
    answer = asked(Ahead(10_000, 89_000, 5_000, 10_000, 0.0))
    assert isinstance(answer, Refuse)
    assert answer.retry_after_s == pytest.approx(40.5)
    assert answer.reason.endswith("go before it, its class waits 60 s at most")


def test_a_class_with_a_floor_does_not_wait_for_all_above_it() -> None:
    flooded = Ahead(0, 1_000_000, 0, 1_000, 0.1)
    assert predicted_wait_s(flooded, RATES) == pytest.approx(10.0)
    assert predicted_wait_s(Ahead(0, 1_000, 0, 1_000, 0.1), RATES) == pytest.approx(2.0)


def test_without_a_rate_it_queues_and_says_that_nothing_is_known() -> None:
    answer = asked(Ahead(0, 1e9, 0, 1e9, 0), rates=None)
    assert isinstance(answer, Admit)
    assert answer.wait_s is None
    assert "not known" in answer.reason


def test_a_full_queue_refuses_with_the_time_until_a_place_is_free() -> None:
    answer = asked(Ahead(0, 0, 0, 30_000, 0), Queue(entries=60, tenant_entries=40))
    assert answer == Refuse(0.5, "60 requests queue, 40 of this tenant")
    assert isinstance(asked(Ahead(0, 0, 0, 1, 0), Queue(entries=60, tenant_entries=39)), Admit)


def test_bytes_are_bounded_as_well() -> None:
    some = Queue(entries=5, bytes=600, tenant_entries=2, tenant_bytes=300)
    assert isinstance(asked(Ahead(0, 0, 0, 1, 0), some, body_bytes=100), Admit)
    answer = asked(Ahead(0, 0, 0, 1, 0), some, body_bytes=101)
    assert isinstance(answer, Refuse)
    assert "600 bytes" in answer.reason


@given(st.lists(st.booleans(), max_size=400))
def test_a_flood_never_fills_the_queue(mine: list[bool]) -> None:
    """Whoever asks first finds room, however many others have queued."""
    counts = {True: 0, False: 0}
    for who in mine:
        queue = Queue(entries=sum(counts.values()), tenant_entries=counts[who])
        if isinstance(asked(Ahead(0, 0, 0, 0, 0), queue), Admit):
            counts[who] += 1
    assert sum(counts.values()) < 100
    newcomer = asked(Ahead(0, 0, 0, 0, 0), Queue(entries=sum(counts.values())))
    assert isinstance(newcomer, Admit)


@given(AHEADS, AHEADS)
def test_more_work_ahead_is_never_a_shorter_wait(one: Ahead, other: Ahead) -> None:
    names = ("higher_input_tokens", "higher_output_tokens", "input_tokens", "output_tokens")
    more = Ahead(*(max(getattr(one, name), getattr(other, name)) for name in names), one.floor)
    assert predicted_wait_s(one, RATES) <= predicted_wait_s(more, RATES)


@given(AHEADS, st.floats(1, 1e6), st.floats(1, 1e6), st.floats(1, 100))
def test_a_faster_pool_is_never_a_longer_wait(
    ahead: Ahead, prefill: float, decode: float, times: float
) -> None:
    slow = PoolRates(prefill, decode, "")
    fast = PoolRates(prefill * times, decode * times, "")
    assert predicted_wait_s(ahead, fast) <= predicted_wait_s(ahead, slow)


@given(AHEADS, st.floats(0.1, 1e6), st.floats(0.1, 1e6))
def test_more_patience_never_refuses_what_less_let_in(
    ahead: Ahead, one_s: float, other_s: float
) -> None:
    short, long = sorted((one_s, other_s))
    hasty, calm = asked(ahead, patience_s=short), asked(ahead, patience_s=long)
    assert isinstance(calm, Admit) or isinstance(hasty, Refuse)
    if isinstance(hasty, Refuse) and isinstance(calm, Refuse):
        assert calm.retry_after_s <= hasty.retry_after_s


@given(AHEADS)
def test_whoever_comes_again_when_told_to_is_let_in(ahead: Ahead) -> None:
    """Where the pool works on at its rate and nobody else comes."""
    answer = asked(ahead)
    if isinstance(answer, Refuse):
        wait_s = predicted_wait_s(ahead, RATES)
        assert wait_s - answer.retry_after_s == pytest.approx(60.0)


def test_a_meter_knows_nothing_before_it_has_seen_enough() -> None:
    meter = Meter(100, 3)
    for _ in range(3):
        assert meter.ratio is None
        meter.saw(50, 0.5)
    assert meter.ratio == pytest.approx(100)
    idle = Meter(100, 1)
    idle.saw(0, 5)
    assert idle.ratio is None  # nothing served is no rate
    idle.saw(5, 0)
    assert idle.ratio is not None
    instant = Meter(100, 1)
    instant.saw(5, 0)
    assert instant.ratio is None


@given(st.floats(0.01, 1e6), st.lists(st.floats(0.1, 10), min_size=20, max_size=50))
def test_a_meter_finds_a_steady_rate(rate: float, steps: list[float]) -> None:
    meter = Meter()
    for seconds in steps:
        meter.saw(rate * seconds, seconds)
    assert meter.ratio == pytest.approx(rate)


def test_a_meter_forgets() -> None:
    meter = Meter(half=30)
    for _ in range(100):
        meter.saw(10, 1)
    for _ in range(120):
        meter.saw(40, 1)
    assert meter.ratio == pytest.approx(40, rel=0.1)
