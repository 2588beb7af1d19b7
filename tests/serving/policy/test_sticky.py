"""Sticky until saturated: both bounds, and what is kept."""

from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.sticky import (
    EVEN,
    REQUEST_TOKENS,
    SLACK,
    Saturation,
    Score,
    cost,
    keep,
    saturation,
)

TAU = Saturation(1000.0, "a test")

scores = st.lists(
    st.builds(
        Score,
        replica=st.sampled_from([f"r{i}" for i in range(8)]),
        load=st.integers(0, 100),
        backlog_tokens=st.integers(0, 10**5),
        warm_tokens=st.integers(0, 10**4),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda one: one.replica,
)


def kept(*rows: Score) -> list[str]:
    """Among whom a conversation's next turn goes to the cheapest."""
    return [score.replica for score in keep(rows, TAU, continues=True).scores]


@given(scores, st.floats(0, 1e6), st.booleans())
def test_somebody_is_always_kept_and_nobody_far_beyond_the_mean(rows, tau, continues) -> None:
    found = keep(rows, Saturation(tau, "a test"), continues=continues)
    mean = (sum(row.load for row in rows) + 1) / len(rows)
    assert found.scores
    assert found.reason
    assert all(row in rows for row in found.scores)
    assert all(row.load + 1 <= max(EVEN * mean, mean + SLACK) for row in found.scores)


def test_the_warm_one_is_kept_while_it_waits_at_most_tau_longer() -> None:
    warm, cold = Score("warm", 1, 1500, 4000), Score("cold", 1, 500)
    assert kept(warm, cold) == ["warm"]
    assert kept(Score("warm", 1, 1501, 4000), cold) == ["warm", "cold"]


def test_of_several_warm_ones_the_least_busy_decides_whether_they_are_saturated() -> None:
    busy, idle = Score("busy", 1, 9000, 4000), Score("idle", 1, 0, 3500)
    assert kept(busy, idle, Score("cold", 1, 0)) == ["busy", "idle"]


def test_one_that_has_much_less_than_the_warmest_is_cold() -> None:
    assert kept(Score("warm", 1, 0, 4000), Score("half", 1, 0, 2000)) == ["warm"]


def test_a_warm_one_with_far_more_requests_than_the_mean_lets_go() -> None:
    cold = [Score(f"c{n}", 20) for n in range(3)]
    assert kept(Score("warm", 24, 0, 4000), *cold) == ["warm"]
    assert kept(Score("warm", 40, 0, 4000), *cold) == ["c0", "c1", "c2"]
    said = keep([Score("warm", 40, 0, 4000), *cold], TAU, continues=True).reason
    assert said == "warm is warm but with far more requests than the mean"


def test_a_beginning_that_many_share_binds_nobody() -> None:
    found = keep([Score("a", 1, 0, 4000), Score("b", 1, 0)], TAU, continues=False)
    assert [score.replica for score in found.scores] == ["a", "b"]
    assert found.reason == "a shared beginning"


def test_the_reason_of_letting_go_names_tau_and_where_it_comes_from() -> None:
    said = keep([Score("w", 1, 5000, 4000), Score("c", 1)], TAU, continues=True).reason
    assert "5,000 tokens more wait there" in said
    assert "tau 1,000 (a test)" in said


def test_with_nothing_warm_and_nothing_in_flight_cost_orders_by_load() -> None:
    assert cost(0, 0, 700) < cost(3, 0, 700) < cost(5, 0, 700)


def test_what_is_saved_is_worth_so_many_requests_beside_it() -> None:
    assert cost(2, 0, 100) < cost(0, 0, 100 + 2 * REQUEST_TOKENS + 1)
    assert cost(2, 0, 100) > cost(0, 0, 100 + 2 * REQUEST_TOKENS - 1)


def test_of_what_many_share_half_the_saving_counts_where_it_is_little() -> None:
    assert cost(0, 0, 100, shared_tokens=1000) == cost(0, 0, 600)
    assert cost(0, 0, 100, shared_tokens=30_000) == cost(1, 0, 100)


def test_tau_is_the_rate_times_the_wait_shared_by_the_gateways() -> None:
    whole = saturation(20_480.0, 14.0, "one calibration")
    assert whole.tokens == 286_720, "the published example: Qwen3-32B on an H100"
    shared = saturation(20_480.0, 14.0, "one calibration", gateways=4)
    assert shared.tokens == whole.tokens / 4
    assert "shared by 4 gateways" in shared.source
