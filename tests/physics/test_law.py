"""Every law on floats, on arrays and on quantities: one result, of the dimension it promises."""

import importlib
import itertools
import math
import pkgutil

import numpy as np
import pytest

import ridgeline.physics
from ridgeline.errors import UnitError
from ridgeline.physics.law import LAWS, Law, law
from ridgeline.quantity import Provenance, Quantity, overriding, set_to
from ridgeline.units import base_symbol, parse_unit

for module in pkgutil.iter_modules(ridgeline.physics.__path__):
    importlib.import_module(f"ridgeline.physics.{module.name}")

NAMES = sorted(LAWS)
POINTS = 5
TRIES = 60
# Shares and ratios first, so that a law of probabilities stays in its domain.
RANGES = ((0.05, 0.95), (1.0, 8.0), (8.0, 64.0), (0.001, 1000.0))


def called(one: Law):
    """The law as it is called: the wrapped function of its module."""
    return getattr(importlib.import_module(one.function.__module__), one.name)


def points(one: Law) -> list[dict[str, float]]:
    """Draws that the law gives a finite number for, from shares to counts."""
    chance = np.random.default_rng(7)
    names = [name for name in one.parameters if name not in one.constants]
    found: list[dict[str, float]] = []
    for low, high in RANGES:
        draws = np.exp(chance.uniform(np.log(low), np.log(high), (TRIES, len(names))))
        tried = (dict(zip(names, map(float, draw), strict=True)) for draw in draws)
        found += list(itertools.islice((point for point in tried if answers(one, point)), POINTS))
    return found


def answers(one: Law, point: dict[str, float]) -> bool:
    try:
        result = one.function(**point, **one.constants)
    except (ArithmeticError, ValueError, UnitError):
        return False
    return isinstance(result, float | int) and math.isfinite(result)


def quantities(one: Law, values: dict[str, float]) -> dict[str, Quantity]:
    return {
        name: Quantity(value, parse_unit(base_symbol(one.parameters[name].dimension)), name=name)
        for name, value in values.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_law_says_the_same_on_floats_arrays_and_quantities(name):
    one, inputs = LAWS[name], points(LAWS[name])
    assert len(inputs) >= POINTS, f"{name} has no domain"
    arrays = {key: np.array([point[key] for point in inputs]) for key in inputs[0]}
    together = np.broadcast_to(called(one)(**arrays), len(inputs))
    for point, at_once in zip(inputs, together, strict=True):
        alone = called(one)(**point)
        np.testing.assert_allclose(at_once, alone, rtol=1e-9)
        np.testing.assert_allclose(called(one)(**quantities(one, point)).value, alone, rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_a_law_gives_the_dimension_its_name_promises_with_its_constants_in_the_chain(name):
    one = LAWS[name]
    known = called(one)(**quantities(one, points(one)[0]))
    assert known.dimension == one.result.dimension
    assert known.name == name
    named = {step.name for step in known.walk()}
    assert named >= set(one.constants)
    for step in known.walk():
        if step.name in one.constants:
            assert step.provenance is Provenance.ASSUMED
            assert step.source


@pytest.mark.parametrize("name", NAMES)
def test_a_law_says_what_it_is_and_who_says_so(name):
    one = LAWS[name]
    assert one.summary
    assert one.source


@pytest.mark.parametrize("name", [name for name in NAMES if len(LAWS[name].parameters) > 0])
def test_a_law_refuses_a_number_of_another_dimension(name):
    one = LAWS[name]
    arguments = quantities(one, points(one)[0])
    wrong = next(iter(arguments))
    arguments[wrong] = arguments[wrong] * Quantity(1.0, parse_unit("kg"), name="mass")
    with pytest.raises(UnitError) as caught:
        called(one)(**arguments)
    assert wrong in str(caught.value)


def test_a_constant_of_a_law_can_be_set_by_its_name():
    from ridgeline.physics.size import forward_flop_per_token

    params = Quantity(7e9, parse_unit(""), name="params")
    with overriding({"flop_per_param_token": set_to("6 FLOP/token")}):
        assert forward_flop_per_token(params).value == 42e9
    assert forward_flop_per_token(params).value == 14e9


def test_two_laws_cannot_have_one_name():
    def read_s(read_bytes, bytes_per_s):
        """Another.

        Source: nobody.
        """
        return read_bytes / bytes_per_s

    with pytest.raises(AssertionError, match="two laws"):
        law(read_s)
