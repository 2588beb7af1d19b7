"""Experiments: deterministic, bounded, and what they show is what they are named for."""

import time
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest

from ridgeline.errors import SpecError
from ridgeline.physics.chance import (
    longest_over_mean_exponential,
    longest_over_mean_uniform,
    two_gangs_deadlock,
)
from ridgeline.platform.experiments import EXPERIMENTS, MOST_WORK, experiments, perform
from ridgeline.quantity import Quantity, given

experiments()


def run(name: str, **arguments: Any) -> Any:
    found = perform(name, **arguments)
    return tuple(one.value for one in found) if isinstance(found, tuple) else found.value


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_gives_the_same_twice_and_takes_no_more_than_three_seconds(name: str):
    function: Callable[..., Any] = EXPERIMENTS[name].function.__wrapped__
    start = time.process_time()
    first = function()
    assert time.process_time() - start < 3
    assert function() == first


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_parameter_has_a_default_and_a_plain_type(name: str):
    one = EXPERIMENTS[name]
    assert one.summary.endswith(".")
    for key, parameter in one.signature.parameters.items():
        kind = one.types[key]
        assert kind in (int, float) or get_origin(kind) is Literal, key
        assert parameter.default is not parameter.empty, key


def another(kind: Any, was: Any) -> Any:
    """A value that differs from the default."""
    if get_origin(kind) is Literal:
        return next(word for word in get_args(kind) if word != was)
    return was + 1 if kind is int else was / 2


def test_every_parameter_changes_the_result_somewhere():
    other: dict[tuple[str, str], dict[str, Any]] = {
        ("speculative-gap", "pairs"): {"pairs": 3},
        ("speculative-gap", "vocabulary"): {"vocabulary": 200},
        ("burst", "step_s"): {"step_s": 7.0, "overload_waste": 0.05, "period_s": 500.0},
        ("burst", "slots"): {"slots": 32},
        ("gang-deadlock", "jobs"): {"jobs": 1},
        ("gang-deadlock", "pods"): {"pods": 33},
        ("gang-deadlock", "places"): {"places": 70, "pods": 36},
        ("gang-deadlock", "trials"): {"trials": 10, "pods": 33},
        ("gang-deadlock", "seed"): {"seed": 1, "pods": 33},
        ("tight-cache", "steps"): {"steps": 50},
        ("tight-cache", "sequences"): {"sequences": 3},
        ("tight-cache", "blocks"): {"blocks": 12},
        ("tight-cache", "block_tokens"): {"block_tokens": 12},
        ("tight-cache", "prompt_tokens"): {"prompt_tokens": 8},
        ("tight-cache", "output_tokens"): {"output_tokens": 2},
        ("dominant-share", "cores"): {"cores": 20},
        ("dominant-share", "memory"): {"memory": 4},
        ("dominant-share", "first_cores"): {"first_cores": 9},
        ("dominant-share", "first_memory"): {"first_memory": 18},
        ("dominant-share", "second_cores"): {"second_cores": 9},
        ("dominant-share", "second_memory"): {"second_memory": 18},
    }
    for name, one in EXPERIMENTS.items():
        for key, parameter in one.signature.parameters.items():
            changed = other.get((name, key)) or {key: another(one.types[key], parameter.default)}
            without = {other_key: value for other_key, value in changed.items() if other_key != key}
            assert run(name, **changed) != run(name, **without), (name, key)


def test_work_is_bounded_before_it_begins():
    start = time.process_time()
    for name, arguments in {
        "steals": {"depth": 10**6},
        "ring-imbalance": {"rings": 10**15},
        "ring-moved-share": {"rings": 10**15},
        "one-pass-variance": {"values": 10**15},
        "speculative-gap": {"vocabulary": 10**15},
        "tile-padding": {"tokens": 10**15},
        "dominant-share": {"memory": 10**15},
        "gang-deadlock": {"pods": 10**15},
        "burst": {"period_s": 1e300},
        "tight-cache": {"steps": 10**15},
    }.items():
        with pytest.raises(SpecError, match="too many"):
            perform(name, **arguments)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_most_work_that_is_allowed_takes_seconds(name: str):
    most = {
        "steals": {"depth": 19},
        "ring-imbalance": {"rings": 300_000},
        "ring-moved-share": {"rings": 300_000},
        "one-pass-variance": {"values": 250_000},
        "speculative-gap": {"pairs": 20_000},
        "tile-padding": {"draws": 18},
        "dominant-share": {"memory": 499_000, "cores": 900},
        "gang-deadlock": {"trials": 19_000},
        "burst": {"period_s": 2_400_000.0},
        "tight-cache": {"steps": 62_000},
    }[name]
    one = EXPERIMENTS[name]
    bound = one.signature.bind(**most)
    bound.apply_defaults()
    assert one.cost(**bound.arguments) > MOST_WORK / 2
    start = time.process_time()
    one.function.__wrapped__(**most)
    assert time.process_time() - start < 10


def test_a_result_remembers_its_arguments_and_whose_they_are():
    found = perform("burst", residence_s=given("20 s", name="residence"), load=0.7)
    assert isinstance(found, Quantity)
    leaves = {step.name: step for step in found.walk() if not step.op}
    assert leaves["residence"].to("s") == 20
    assert leaves["load"].source == "the working"
    assert "default" in leaves["slots"].source
    assert "newest" in perform("steals", end="newest").note


def test_one_pass_variance_is_off_by_hundreds_and_two_passes_by_almost_nothing():
    assert run("one-pass-variance") == pytest.approx((145.2, 6.7e-5), rel=0.01)
    one_pass, two_pass = run("one-pass-variance", mean=1000.0)
    assert one_pass == pytest.approx(1.7, rel=0.01)
    assert two_pass < 1e-3
    assert max(run("one-pass-variance", mean=0.0)) < 1e-5


def test_accept_and_resample_gives_the_target_but_for_rounding():
    assert 0 < run("speculative-gap") < 1e-15
    assert 0 < run("speculative-gap", pairs=500, vocabulary=64, seed=9) < 1e-15


def test_padding_falls_with_more_tokens_and_is_three_quarters_with_few():
    assert run("tile-padding", skew=0.0, draws=10) == pytest.approx(0.325, rel=0.01)
    assert run("tile-padding", skew=0.0, tokens=1024) == pytest.approx(0.75)
    assert run("tile-padding", draws=10, seed=1) == pytest.approx(0.377, rel=0.01)
    assert run("tile-padding", tokens=128, top_k=4, experts=4, tile=128) == 0


def explicit_ring(chance: np.random.Generator, replicas: int, points: int) -> float:
    """Largest share over smallest of one ring, by sorting its points."""
    positions = chance.random(replicas * points)
    owners = np.repeat(np.arange(replicas), points)[np.argsort(positions)]
    arcs = np.diff(np.sort(positions), append=positions.min() + 1)
    shares = np.bincount(owners, weights=arcs, minlength=replicas)
    return float(shares.max() / shares.min())


@pytest.mark.parametrize(("points", "wanted"), [(1, 28.7), (150, 1.257)])
def test_arcs_by_gamma_numbers_are_those_of_points_on_a_ring(points: int, wanted: float):
    chance = np.random.default_rng(1)
    explicit = np.median([explicit_ring(chance, 8, points) for _ in range(2000)])
    assert explicit == pytest.approx(wanted, rel=0.06)
    quick = run("ring-imbalance", points=points, rings=250_000)
    assert quick == pytest.approx(wanted, rel=0.01)


def test_one_more_replica_takes_its_share_of_keys():
    assert run("ring-moved-share", rings=50_000) == pytest.approx(1 / 9, rel=0.01)
    assert run("ring-moved-share", replicas=3, points=10, rings=50_000) == pytest.approx(
        1 / 4, rel=0.01
    )


def test_stealing_the_oldest_task_is_rare_on_every_seed():
    ratios = [
        run("steals", end="newest", seed=seed) / run("steals", seed=seed) for seed in range(20)
    ]
    assert min(ratios) > 3
    assert 10 < np.median(ratios) < 40
    assert run("steals", workers=1) == 0


def test_dominant_shares_split_three_and_two_and_whole_shares_give_one_user_all():
    assert run("dominant-share") == (3, 2)
    assert run("dominant-share", shares="whole") == (4, 0)
    assert run("dominant-share", cores=0, memory=0) == (0, 0)
    assert run("dominant-share", first_cores=0, first_memory=0)[0] == 0


@pytest.mark.parametrize(("pods", "places"), [(33, 64), (40, 64), (64, 64), (10, 20), (10, 19)])
def test_gangs_deadlock_as_often_as_the_closed_form_says(pods: int, places: int):
    simulated = run("gang-deadlock", pods=pods, places=places, trials=8000)
    assert simulated == pytest.approx(two_gangs_deadlock(pods, places), abs=0.02)
    assert run("gang-deadlock", pods=pods, places=places, admission="whole-job", trials=50) == 0


def test_a_burst_drains_where_overload_costs_less_than_the_spare_capacity():
    assert run("burst") == pytest.approx(1648, rel=0.01)
    assert run("burst", overload_waste=0.05) == pytest.approx(0.9 * 64, rel=0.01)
    assert run("burst", overload_waste=0.0) == pytest.approx(0.9 * 64, rel=0.01)
    assert run("burst", load=0.7) == pytest.approx(0.7 * 64, rel=0.01)
    assert run("burst", overload_waste=0.101) > 300


def test_only_evicting_the_oldest_and_restarting_from_zero_livelocks():
    assert run("tight-cache") == (17, 0)
    assert run("tight-cache", steps=5000) == (833, 0)
    assert run("tight-cache", victim="newest", steps=5000)[1] == 4
    for victim in ("oldest", "newest"):
        assert run("tight-cache", victim=victim, restart="keeps-tokens")[1] == 4


def test_a_batch_lasts_as_long_as_its_longest_answer():
    chance = np.random.default_rng(0)
    exponential = chance.exponential(size=(200_000, 8)).max(1).mean()
    uniform = chance.random((200_000, 8)).max(1).mean() / 0.5
    assert longest_over_mean_exponential(8) == pytest.approx(exponential, rel=0.01)
    assert longest_over_mean_uniform(8) == pytest.approx(uniform, rel=0.01)
