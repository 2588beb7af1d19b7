"""The step-time model in whole femtoseconds, for those who ask it millions of times.

Where a step's parts only add up (nothing overlaps, no window bends a cache), it is

    max(weights, product x tokens) + ring x tokens + sequence x decodes + fixed
        + cached x cached tokens + attended x (prompt token, token it attends to) pairs

with constants that are taken from a `StepTime` once, rounded to 1e-15 s each; of a model with
routed experts `weights` depends on the tokens. From then on there are whole numbers only, so that a
sum of steps is exact. What is read of routed experts comes from a power, whose last bit may differ
between machines: it is rounded here, before anything is added to it.
"""

from dataclasses import dataclass, field

from ridgeline.physics.step_time import StepTime

FS = 10**15


@dataclass(frozen=True, slots=True)
class StraightSteps:
    """The constants. `routed` is the model where weights that are read depend on the tokens."""

    weights_fs: int
    product_fs: int
    ring_fs: int
    sequence_fs: int
    fixed_fs: int
    cached_fs: int
    attended_fs: int
    routed: StepTime | None = None
    factor: float = 1.0
    _weights: dict[int, int] = field(default_factory=dict, compare=False)

    def step_fs(self, decodes: int, cached: int, prompts: int, pairs: int) -> int:
        """One step: `decodes` sequences with `cached` tokens in all, and `prompts` tokens.

        `pairs` is the sum over prompt tokens of the tokens that each attends to.
        """
        tokens = decodes + prompts
        weights = self.weights_fs if self.routed is None else self._read_fs(self.routed, tokens)
        product = self.product_fs * tokens
        return (
            (product if product > weights else weights)
            + self.ring_fs * tokens
            + self.sequence_fs * decodes
            + self.fixed_fs
            + self.cached_fs * cached
            + self.attended_fs * pairs
        )

    def slower(self, factor: float) -> "StraightSteps":
        """All of it so many times as long."""
        return StraightSteps(
            round(self.weights_fs * factor),
            round(self.product_fs * factor),
            round(self.ring_fs * factor),
            round(self.sequence_fs * factor),
            round(self.fixed_fs * factor),
            round(self.cached_fs * factor),
            round(self.attended_fs * factor),
            self.routed,
            self.factor * factor,
        )

    def _read_fs(self, routed: StepTime, tokens: int) -> int:
        known = self._weights.get(tokens)
        if known is None:
            read_s = routed.weights_s(routed.work(float(tokens), 0.0).read_bytes)
            known = self._weights[tokens] = _fs(read_s * self.factor)
        return known


def straight_steps(steps: StepTime) -> StraightSteps | None:
    """The constants of a model on floats; None where its steps are not so simple."""
    shape = steps.shape
    if steps.coefficients.overlaps or shape.window_bytes_per_token:
        return None
    one, far = 1.0, float(1 << 20)
    fixed_s = steps.added_s(None, 0.0)
    weights_s = steps.weights_s(steps.work(one, 0.0).read_bytes)
    product_s = steps.compute_s(shape.flop_per_token)
    empty_s = steps.step_s(one, 0.0)
    alone_s = steps.step_s(None, None, one, 0.0)
    return StraightSteps(
        _fs(weights_s),
        _fs(product_s),
        _fs(steps.added_s(None, one) - fixed_s),
        _fs(empty_s - max(weights_s, product_s) - steps.added_s(None, one)),
        _fs(fixed_s),
        _fs((steps.step_s(one, far) - empty_s) / far),
        _fs((steps.step_s(None, None, one, far) - alone_s) / far),
        steps if shape.routed_bytes else None,
    )


def _fs(seconds: float) -> int:
    return round(float(seconds) * FS)
