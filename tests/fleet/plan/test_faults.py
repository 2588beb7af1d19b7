"""A device that fails some tests: what its record says, whether to take it, what a miss costs."""

import random
from math import comb

import pytest

from ridgeline.physics.chance import failing_rate_quantile
from ridgeline.physics.evidence import chance_of_any_failure
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


def record(fails, passes, **given):
    return ask("intermittent-fault", {"fails": str(fails), "passes": str(passes)} | given).answer


@pytest.mark.proves("S027")
def test_two_fails_and_a_pass_fail_60_percent_of_tests_within_19_to_93():
    values = record(2, 1, prior_fails="1", prior_passes="1", confidence="0.95").values
    assert values["mean"].value == pytest.approx(0.60)
    assert values["low"].value == pytest.approx(0.19, abs=0.005)
    assert values["high"].value == pytest.approx(0.93, abs=0.005)


@pytest.mark.proves("S027")
def test_the_verdict_is_the_cheaper_one_and_a_miss_has_its_price():
    bad, good = record(2, 1), record(0, 500)
    assert bad.says.startswith("reject")
    assert bad.values["accept_cost"].value > bad.values["reject_cost"].value
    assert good.says.startswith("accept")
    assert good.values["accept_cost"].value < good.values["reject_cost"].value
    miss = record(2, 1, job_gpus="1024", lost_s="1 h", price_usd_per_s="2 USD/h").values
    assert miss["cost_of_a_miss"].value == pytest.approx(2048)


def test_the_chance_of_a_miss_is_that_of_drawn_devices():
    drawn = random.Random(3)
    runs, times = 20, 20_000
    missed = sum(
        any(drawn.random() < rate for _ in range(runs))
        for rate in (drawn.betavariate(1, 12) for _ in range(times))
    )
    exact = record(0, 11, runs=str(runs)).values["chance_of_a_miss"].value
    assert exact == pytest.approx(missed / times, abs=0.015)


@pytest.mark.parametrize(("rate", "tests"), [("0.1", 29), ("0.05", 59), ("0.01", 299)])
def test_tests_that_are_needed_to_see_a_rate(rate, tests):
    values = record(0, 3, limit=rate, confidence="0.95").values
    assert values["tests_to_see_limit"].value == tests


def test_a_device_that_fails_one_run_in_ten_passes_three_in_73_percent():
    values = record(0, 3, limit="0.1").values
    assert values["limit_passes_all"].value == pytest.approx(0.73, rel=0.01)


def test_so_many_clean_tests_more_bring_the_mean_down_to_the_limit():
    more = record(2, 1, limit="0.05").values["clean_tests_needed"].value
    assert record(2, 1 + int(more)).values["mean"].value <= 0.05
    assert record(2, int(more)).values["mean"].value > 0.05
    assert record(0, 100, limit="0.05").values["clean_tests_needed"].value == 0


@pytest.mark.parametrize(("fails", "passes"), [(2, 1), (0, 0), (4, 8), (0, 39)])
def test_bounds_of_the_rate_are_where_the_binomial_sum_says(fails, passes):
    n = fails + passes + 1
    for share in (0.025, 0.5, 0.975):
        rate = failing_rate_quantile(share, fails, passes)
        below = sum(comb(n, j) * rate**j * (1 - rate) ** (n - j) for j in range(fails + 1, n + 1))
        assert below == pytest.approx(share, rel=1e-9)


def test_no_runs_fail_none():
    assert chance_of_any_failure(0.0, 3.0, 2.0) == pytest.approx(0)
