"""Every way to draw on this machine, and each token's probability by the rules, in float64."""

from functools import lru_cache
from typing import Any

import numpy as np

from ridgeline.kernels.choose import PORTABLE
from ridgeline.kernels.draws import Drawn, Draws, Row
from ridgeline.kernels.library import levels
from ridgeline.kernels.native_draws import NativeDraws
from ridgeline.serving.engine.draw import PortableDraws

WAYS = [PORTABLE, *levels()]


@lru_cache(64)
def draws(way: str, vocab: int, threads: int = 1) -> Draws:
    if way == PORTABLE:
        return PortableDraws(vocab)
    return NativeDraws(vocab, level=way, threads=threads)


def draw_rows(way: str, logits_RV: Any, rows: list[Row], threads: int = 1) -> list[Drawn]:
    """Without any adjusted rows."""
    vocab = logits_RV.shape[1]
    return draws(way, vocab, threads).draw(logits_RV, np.empty((0, vocab), np.float32), rows)


def probabilities(logits: Any, rules: Any) -> tuple[Any, float]:
    """Each token's probability, and how near any rule came to deciding otherwise."""
    scaled = logits.astype(np.float64) / rules.temperature
    probability = np.exp(scaled - scaled.max())
    margin = 1.0
    if rules.min_p:
        kept = probability >= rules.min_p
        if rules.min_p < 1:
            margin = np.abs(probability - rules.min_p).min()
        probability = np.where(kept, probability, 0)
    if rules.top_k:
        kth = np.sort(probability)[::-1][min(rules.top_k, len(logits)) - 1]
        probability = np.where(probability >= kth, probability, 0)
    probability /= probability.sum()
    if rules.top_p < 1:
        order = np.argsort(-probability, kind="stable")
        reached = np.cumsum(probability[order])
        count = min(int((reached < rules.top_p).sum()) + 1, len(order))
        if rules.top_p > 0:
            margin = min(margin, np.abs(reached - rules.top_p).min())
        probability[order[count:]] = 0
        probability /= probability.sum()
    return probability, margin
