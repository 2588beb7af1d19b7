"""The numbers that the console shows, with a clock that the test turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.gateway.record import WINDOW_S, Exchange, Record, percentiles
from ridgeline.serving.gateway.sse import Usage

S = 1_000_000_000


def ended(at_s: float, *, status: int = 200, tokens: int = 5, took_s: float = 1.0) -> Exchange:
    at_ns = int(at_s * S)
    return Exchange(
        "id",
        "/v1/completions",
        at_ns - int(took_s * S),
        0.0,
        status=status,
        first_ns=at_ns - int(took_s * S) + S // 10,
        last_ns=at_ns,
        ended_ns=at_ns,
        usage=Usage(3, tokens),
    )


def test_times_of_one_exchange() -> None:
    exchange = ended(10, tokens=10)
    assert exchange.ttft_s == pytest.approx(0.1)
    assert exchange.tpot_s == pytest.approx(0.9 / 9)
    assert exchange.e2e_s == pytest.approx(1.0)


def test_one_token_has_no_time_for_each_further_token() -> None:
    assert ended(10, tokens=1).tpot_s is None


def test_rates_are_means_of_the_last_ten_whole_seconds() -> None:
    record = Record(0)
    for second in range(100, 110):
        for _ in range(3):
            record.finished(ended(second + 0.5))
    rates = record.rates(110 * S)
    assert (rates["requests_per_s"], rates["output_tokens_per_s"]) == (3.0, 15.0)
    assert rates["series"]["requests"][-10:] == [3] * 10
    assert sum(record.rates(115 * S)["series"]["requests"]) == 30
    assert record.rates(115 * S)["requests_per_s"] == 1.5
    assert sum(record.rates((110 + WINDOW_S) * S)["series"]["requests"]) == 0


def test_tokens_count_when_they_pass_and_the_replicas_count_corrects_at_the_end() -> None:
    record = Record(0)
    exchange = ended(12.5, tokens=8)
    for second in (10, 11, 12):
        record.streamed(2, int((second + 0.1) * S))
        exchange.contents += 2
    record.finished(exchange)
    assert record.rates(13 * S)["series"]["output_tokens"][-3:] == [2, 2, 4]
    assert record.tokens == 8


def test_percentiles_cover_answered_requests_of_the_window_only() -> None:
    record = Record(0)
    record.finished(ended(10, took_s=100))
    for took_s in (1, 2, 3):
        record.finished(ended(200, took_s=took_s))
    record.finished(ended(200, status=502, took_s=50))
    e2e = record.latency(201 * S)["e2e"]
    assert (e2e["p50"], e2e["p99"], e2e["count"]) == (2.0, 3.0, 3)


def test_a_client_that_left_is_recent_but_no_error() -> None:
    record = Record(0)
    record.finished(ended(1, status=499))
    record.finished(ended(2, status=502))
    assert [row["status"] for row in record.recent()] == [502, 499]
    assert [row["status"] for row in record.errors()] == [502]


def test_memory_stays_bounded() -> None:
    record = Record(0)
    for number in range(20_000):
        record.finished(ended(number / 10, status=502 if number % 2 else 200))
    assert (len(record.recent()), len(record.errors())) == (50, 20)
    assert record.latency(2000 * S)["e2e"]["count"] <= 8192
    assert len(record.rates(2000 * S)["series"]["requests"]) == WINDOW_S


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_percentiles_are_values_that_occurred_and_in_order(values) -> None:
    found = percentiles(values)
    assert min(values) <= found["p50"] <= found["p90"] <= found["p99"] <= max(values)
    assert {found["p50"], found["p90"], found["p99"]} <= set(values)
