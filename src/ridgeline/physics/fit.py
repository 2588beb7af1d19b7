"""Fits positive coefficients to measured times: most probable values, with their uncertainty.

A MAP estimate in log space: few points cannot pull a coefficient far from its prior, which is worth
more than the points (3 to 6 points with a weak prior do worse than none). Outliers weigh less
(soft-L1). The posterior is Gaussian around the mode (Laplace), from which intervals come.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]  # also for matrices

#: Relative noise of a measured time, and how far logs of coefficients stray between engines.
NOISE_SD = 0.08
PRIOR_SD = 0.4
_STEPS = 60
_NUDGE = 1e-4
_SETTLED = 1e-7


@dataclass(frozen=True, slots=True)
class Fit:
    """Most probable values, and the covariance of their logarithms."""

    values: Vector
    log_covariance: Vector

    def interval(self, index: int, z: float = 1.96) -> tuple[float, float]:
        """The range that holds a coefficient with about 95 %."""
        spread = z * float(np.sqrt(self.log_covariance[index, index]))
        value = float(self.values[index])
        return value * float(np.exp(-spread)), value * float(np.exp(spread))


def fit(
    predict: Callable[[Vector], Vector],
    measured: Vector,
    prior: Vector,
    *,
    prior_sd: float | Vector = PRIOR_SD,
    noise_sd: float = NOISE_SD,
) -> Fit:
    """Coefficients under which `predict` (positive times, n) is nearest to `measured` (n).

    `prior` (k, positive) is where the search starts and what a coefficient stays near, within a
    factor of exp(`prior_sd`), one for all or one each. Gauss-Newton with damping, in log space.

    Source: Levenberg 1944, Marquardt 1963; soft-L1 weights as in Triggs et al. 2000.
    """
    start = np.log(prior)
    theta, damping = start.copy(), 1e-3
    cost = _cost(predict, theta, measured, start, prior_sd, noise_sd)
    for _ in range(_STEPS):
        residual, slope = _linear(predict, theta, measured, noise_sd)
        weight = 1 / np.sqrt(1 + residual**2)
        normal = (slope.T * weight) @ slope + np.eye(len(theta)) / np.square(prior_sd)
        pull = (slope.T * weight) @ residual + (theta - start) / np.square(prior_sd)
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -pull)
        tried = _cost(predict, theta + step, measured, start, prior_sd, noise_sd)
        if tried < cost:
            theta, cost, damping = theta + step, tried, damping / 3
            if float(np.abs(step).max()) < _SETTLED:
                break
        else:
            damping *= 4
    residual, slope = _linear(predict, theta, measured, noise_sd)
    weight = 1 / np.sqrt(1 + residual**2)
    normal = (slope.T * weight) @ slope + np.eye(len(theta)) / np.square(prior_sd)
    return Fit(np.exp(theta), np.asarray(np.linalg.inv(normal), dtype=np.float64))


def _linear(
    predict: Callable[[Vector], Vector], theta: Vector, measured: Vector, noise_sd: float
) -> tuple[Vector, Vector]:
    """Residuals in units of the noise, and their derivatives."""
    here = np.log(predict(np.exp(theta)))
    slope = np.empty((len(measured), len(theta)))
    for index in range(len(theta)):
        nudged = theta.copy()
        nudged[index] += _NUDGE
        slope[:, index] = (np.log(predict(np.exp(nudged))) - here) / _NUDGE
    return (here - np.log(measured)) / noise_sd, slope / noise_sd


def _cost(
    predict: Callable[[Vector], Vector],
    theta: Vector,
    measured: Vector,
    start: Vector,
    prior_sd: float | Vector,
    noise_sd: float,
) -> float:
    residual = np.log(predict(np.exp(theta)) / measured) / noise_sd
    soft = 2 * (np.sqrt(1 + residual**2) - 1)
    return float(soft.sum() + (((theta - start) / prior_sd) ** 2).sum())
