import numpy as np
import pytest

from ridgeline.working.knee import knee

X = np.linspace(0, 10, 101)


@pytest.mark.parametrize(
    ("curve", "at"),
    [
        (np.minimum(X, 3), 3),
        (np.maximum(X, 6), 6),
        (-np.minimum(X, 2), 2),
        (1 - np.exp(-X), np.log(10)),
    ],
)
def test_a_bent_curve_has_its_knee_where_it_is_farthest_from_its_chord(curve, at):
    found = knee(X, curve)
    assert X[found.index] == pytest.approx(at, abs=0.15)


@pytest.mark.parametrize(
    ("curve", "reason"),
    [
        (2 * X + 1, "close to a straight line"),
        (np.ones_like(X), "flat"),
        (np.tanh(3 * (X - 5)), "bends both ways"),
        ((X - 4) ** 2, "lowest"),
        (-((X - 4) ** 2), "highest"),
        (np.full_like(X, np.nan), "under 5 points"),
    ],
)
def test_a_curve_without_a_knee_says_why(curve, reason):
    found = knee(X, curve)
    assert found.index is None
    assert reason in found.reason


def test_a_valley_tells_its_lowest_point():
    assert X[knee(X, (X - 4) ** 2).turn] == pytest.approx(4)


def test_points_without_a_value_are_left_out():
    curve = np.minimum(X, 3)
    curve[::2] = np.nan
    assert X[knee(X, curve).index] == pytest.approx(3, abs=0.2)


def test_points_in_no_order_have_no_knee():
    assert knee(X[::-1], X).index is None
