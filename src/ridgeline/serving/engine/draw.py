"""One draw from one row of logits: temperature, min-p, top-k, top-p, and chance by counter.

The portable way, and the oracle of `kernels.native_draws`, which does the same in C++: `sampler`
uses either, a row by itself, so that a row's outcome cannot depend on its batch. Plain numpy on
float32, sums in float64. No full sort: each rule first finds, at the speed of memory, a small set
that certainly holds what it would keep, and is then exact on that set.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ridgeline.kernels.choose import PORTABLE, kernels
from ridgeline.kernels.draws import Drawn, Draws, Row
from ridgeline.kernels.native_draws import NativeDraws

Floats = NDArray[np.float32]
Ids = NDArray[np.intp]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_GROUPS = 64
_BLOCK = 128
_SLACK = 1 - 1e-5  # far above the rounding of float32 weights and float64 sums


def stream_key(seed: int, index: int) -> int:
    """The key of one continuation's chance; neighbouring seeds and indices have nothing alike."""
    return _mix((_mix(seed & _MASK) + index * _GOLDEN) & _MASK)


def uniform(key: int, position: int) -> float:
    """The number in [0, 1) that decides the token at `position`, whenever it is asked for.

    Source: SplitMix64 (Steele, Lea, Flood 2014), whose state is a counter.
    """
    return (_mix((key + (position + 1) * _GOLDEN) & _MASK) >> 11) * 2.0**-53


def open_draws(vocab: int, threads: int) -> Draws:
    """The fastest way to draw on this machine."""
    level = kernels()
    if level == PORTABLE:
        return PortableDraws(vocab)
    return NativeDraws(vocab, level=level, threads=threads)


class PortableDraws:
    """Draws for one vocabulary, a row after the other."""

    def __init__(self, vocab: int) -> None:
        self._scratch_V = np.empty(vocab, np.float32)

    def draw(self, logits_RV: Floats, adjusted_AV: Floats, rows: Sequence[Row]) -> list[Drawn]:
        """One token for each of `rows`, in order, each by itself."""
        return [
            self._one(
                logits_RV[row.row], adjusted_AV[row.adjusted] if row.adjusted >= 0 else None, row
            )
            for row in rows
        ]

    def _one(self, raw_V: Floats, adjusted_V: Floats | None, row: Row) -> Drawn:
        logits_V = raw_V if adjusted_V is None else adjusted_V
        best = int(logits_V.argmax())
        peak = float(logits_V[best])  # NaN if any is NaN: argmax finds the first
        if not math.isfinite(peak):
            return Drawn(-1, peak)
        token = draw(logits_V, peak, row, self._scratch_V) if row.temperature > 0 else best
        if row.alternatives < 0:
            return Drawn(token, peak)
        normaliser = log_normaliser(raw_V, float(raw_V.max()))
        return Drawn(token, peak, normaliser, largest(raw_V, row.alternatives).tolist())


def draw(logits_V: Floats, peak: float, rules: Row, scratch_V: Floats) -> int:
    """The token that the chance picks; `logits_V` may hold -inf, but not only; `peak` is its max.

    min-p keeps tokens with at least that share of the likeliest one's probability, top-k the k
    largest and all that tie with the last, top-p the fewest likeliest of what is left that have
    that mass (of equals, lower ids first). The rest is drawn by inverse CDF in order of ids.
    """
    floor = _floor(logits_V, peak, rules)
    if floor == -np.inf:
        weights = _weights(logits_V, peak, rules.temperature, scratch_V)
        return _pick(weights, rules.top_p, rules.chance)
    ids = np.flatnonzero(logits_V >= np.float32(floor))
    weights = _weights(logits_V[ids], peak, rules.temperature, scratch_V[: len(ids)])
    return int(ids[_pick(weights, rules.top_p, rules.chance)])


def kth_largest(values: Floats, k: int) -> float:
    """The k-th largest value, 1 <= k <= len(values).

    The maxima of disjoint groups are values too, so the k-th largest of them is a lower bound:
    only what reaches it, some k values, has to be looked at closely.
    """
    columns = len(values) // _GROUPS
    if columns > k:
        maxima = values[: columns * _GROUPS].reshape(_GROUPS, columns).max(axis=0)
        bound = np.partition(maxima, columns - k)[columns - k]
        values = values[values >= bound]
    return float(np.partition(values, len(values) - k)[len(values) - k])


def largest(values: Floats, k: int) -> Ids:
    """Where the k largest values are, largest first; of equals, lower ids first."""
    k = min(k, len(values))
    if k == 0:
        return np.empty(0, np.intp)
    ids = np.flatnonzero(values >= np.float32(kth_largest(values, k)))
    return ids[np.argsort(-values[ids], kind="stable")[:k]]


def log_normaliser(logits_V: Floats, peak: float) -> float:
    """Logarithm of the sum of exp(logits)."""
    return peak + float(np.log(np.exp(logits_V - np.float32(peak)).sum(dtype=np.float64)))


def _floor(logits_V: Floats, peak: float, rules: Row) -> float:
    """The least logit that min-p and top-k keep; both are thresholds, so the higher counts."""
    floor = -np.inf
    if rules.min_p > 0:
        floor = peak + rules.temperature * math.log(rules.min_p)
    if 0 < rules.top_k < len(logits_V):
        floor = max(floor, kth_largest(logits_V, rules.top_k))
    return floor


def _weights(logits: Floats, peak: float, temperature: float, out: Floats) -> Floats:
    """Probabilities but for their common factor, in `out`; the likeliest has 1."""
    np.subtract(logits, np.float32(peak), out=out)
    if temperature != 1:
        with np.errstate(over="ignore"):
            np.divide(out, np.float32(temperature), out=out)
    return np.exp(out, out=out)


def _pick(weights: Floats, top_p: float, chance: float) -> int:
    """The first position whose running sum exceeds that share of the whole, after top-p."""
    if top_p < 1:
        kept = _nucleus(weights, top_p)
        return int(kept[_pick(weights[kept], 1, chance)])
    sums = _RunningSum(weights)
    at = min(sums.first(chance * sums.total, reaching=False), len(weights) - 1)
    # Only rounding can lead to a token without weight; then it is the one before.
    return at if weights[at] > 0 else int(np.flatnonzero(weights[: at + 1])[-1])


def _nucleus(weights: Floats, top_p: float) -> Ids:
    """The positions of the fewest largest weights that have the share `top_p` of the mass.

    Weights under (1 - top_p) / n of the mass are, all together, less than 1 - top_p of it: the
    nucleus lies among the others, and only these are sorted.
    """
    mass = float(weights.sum())
    least = (1 - top_p) * mass / len(weights) * _SLACK
    downward = np.sort(np.compress(weights >= np.float32(least), weights))[::-1]
    count = min(_RunningSum(downward).first(top_p * mass, reaching=True) + 1, len(downward))
    last = downward[count - 1]
    kept = np.flatnonzero(weights >= last)
    surplus = len(kept) - count
    if surplus:  # equals of the last: the highest ids go
        kept = np.delete(kept, np.flatnonzero(weights[kept] == last)[-surplus:])
    return kept


class _RunningSum:
    """Finds where a running sum passes a target, in two levels: plain sums are fast.

    Blocks are summed in float32, pairwise, and these sums in float64.
    """

    def __init__(self, values: Floats) -> None:
        whole = len(values) // _BLOCK * _BLOCK
        self._values = values
        blocks = values[:whole].reshape(-1, _BLOCK).sum(axis=1)
        self._ends = np.cumsum(np.append(blocks, values[whole:].sum()), dtype=np.float64)
        self.total = float(self._ends[-1])

    def first(self, target: float, *, reaching: bool) -> int:
        """The first position where the sum exceeds (or, `reaching`, is at least) `target`."""
        side: Literal["left", "right"] = "left" if reaching else "right"
        block = min(int(self._ends.searchsorted(target, side)), len(self._ends) - 1)
        start = block * _BLOCK
        inner = np.cumsum(self._values[start : start + _BLOCK], dtype=np.float64)
        before = float(self._ends[block - 1]) if block else 0.0
        return start + int(inner.searchsorted(target - before, side))


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
