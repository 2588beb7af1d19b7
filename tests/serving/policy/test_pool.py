"""One model's line: it learns how fast its replicas are, and how long answers are."""

import pytest

from ridgeline.serving.policy.admit import Admit, Bounds, PoolRates, Refuse
from ridgeline.serving.policy.classes import NS
from ridgeline.serving.policy.fair import Nobody, Pick
from ridgeline.serving.policy.pool import Pool
from ridgeline.serving.policy.vtc import Entry


def entry(name: str, tenant: str = "a", **other) -> Entry:
    values = {"input_tokens": 100, "output_tokens": 400}
    return Entry(name, "m", tenant, "default", **(values | other))


def served_for(pool: Pool, seconds: int, *, slots: int = 2, start_s: int = 0) -> None:
    """Each slot says 100 of 400 tokens and ends, once a second, while one always waits."""
    for second in range(start_s, start_s + seconds):
        now_ns = second * NS
        for n in range(slots + 1):
            pool.enter(entry(f"{second}-{n}"), slots, now_ns)
        running = []
        while isinstance(pick := pool.pick(slots, now_ns), Pick):
            running.append(pick.entry.request_id)
        for name in running:
            pool.queue.said(name, 100)
        for name in running:
            pool.end(name, now_ns + NS)
        for n in range(slots + 1):
            pool.leave(f"{second}-{n}")


def test_where_a_slot_is_free_it_starts_at_once() -> None:
    pool = Pool()
    assert pool.enter(entry("one"), 1, 0) == Admit(0.0, "starts at once")
    assert isinstance(pool.pick(1, 0), Pick)
    assert pool.end("one", 5)
    assert not pool.end("one", 5)


def test_it_measures_what_a_slot_serves_while_somebody_waits() -> None:
    """A slot serves 100 input and 100 output tokens, 300 as they are weighed, in a second."""
    pool = Pool()
    assert pool.rates(2) is None
    served_for(pool, 20)
    rates = pool.rates(2)
    assert rates is not None
    assert rates.prefill_tokens_per_s == pytest.approx(600)
    assert rates.decode_tokens_per_s == pytest.approx(300)
    assert rates.seconds(200, 200) == pytest.approx(1.0)
    twice = pool.rates(4)
    assert twice is not None
    assert twice.prefill_tokens_per_s == pytest.approx(1_200)  # a replica more counts at once
    assert pool.rates(0) is None


def test_a_pool_that_is_not_full_says_nothing_of_what_it_could_do() -> None:
    pool = Pool()
    for second in range(50):
        pool.enter(entry(str(second)), 9, second * NS)
        pool.pick(9, second * NS)
        pool.queue.said(str(second), 1)
        pool.end(str(second), (second + 1) * NS)
    assert pool.rates(9) is None


def test_one_slow_request_is_no_rate_and_neither_are_failures() -> None:
    """A long prompt has said little when it ends; nobody is refused for that."""
    pool = Pool()
    for n in range(30):
        pool.enter(entry(f"r{n}"), 1, n * NS)
        pool.pick(1, n * NS)
        pool.enter(entry(f"w{n}"), 1, n * NS)
        if n == 0:
            pool.queue.said("r0", 1)
        pool.end(f"r{n}", n * NS + 10 * NS * (n == 0))
        pool.leave(f"w{n}")
    assert pool.rates(1) is None
    assert pool.output_share == 1.0


def test_it_learns_which_part_of_the_allowed_output_comes() -> None:
    pool = Pool()
    assert pool.output_share == 1.0
    served_for(pool, 20)
    assert pool.output_share == pytest.approx(0.25)


def test_the_wait_is_predicted_by_what_was_measured() -> None:
    pool = Pool()
    served_for(pool, 20)
    for n in range(2):
        pool.enter(entry(f"r{n}"), 2, 30 * NS)
        pool.pick(2, 30 * NS)
    first = pool.enter(entry("first"), 2, 30 * NS)
    assert isinstance(first, Admit)
    assert first.wait_s == pytest.approx(0.5)  # two slots, each a second for one: itself
    second = pool.enter(entry("second"), 2, 30 * NS)
    assert isinstance(second, Admit)
    assert second.wait_s == pytest.approx(1.0)
    other = pool.enter(entry("other", "b"), 2, 30 * NS)
    assert isinstance(other, Admit)
    assert other.wait_s is not None
    assert other.wait_s < 1.0  # its turn comes before the second of the other


def test_rates_that_are_given_go_before_those_measured() -> None:
    pool = Pool()
    served_for(pool, 20)
    pool.enter(entry("r0"), 1, 30 * NS)
    pool.pick(1, 30 * NS)
    answer = pool.enter(entry("one"), 1, 30 * NS, PoolRates(100.0, 100.0, "given"))
    assert isinstance(answer, Admit)
    assert answer.wait_s == pytest.approx(2.0)


def test_one_that_waited_in_vain_leaves_and_hears_when_to_come_again() -> None:
    pool = Pool()
    pool.enter(entry("r0"), 1, 0)
    pool.pick(1, 0)
    pool.enter(entry("one"), 1, 0)
    refused = pool.expire(entry("one"), 0)  # and now there is no replica at all
    assert refused == Refuse(60.0, "no slot came free for it in 60 s")
    assert pool.queue.queued == 0
    known = pool.expire(entry("one"), 1, PoolRates(10.0, 10.0, "given"))
    assert known.retry_after_s == pytest.approx(50.0)
    slow = pool.expire(entry("one"), 1, PoolRates(1.0, 1.0, "given"))
    assert slow.retry_after_s == pytest.approx(500.0 - 60.0)


def test_a_refused_entry_does_not_queue() -> None:
    pool = Pool(bounds=Bounds(entries=0))
    assert isinstance(pool.enter(entry("one"), 0, 0), Refuse)
    assert pool.pick(1, 0) == Nobody("nobody waits")
