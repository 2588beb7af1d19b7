"""How many of the prompts' tokens any cache could have known: the bound beside a hit rate.

Of the requests that replicas got, in the order in which they came: with one cache that all share
and that forgets nothing, and with one that holds as many blocks as all replicas together. The
first is a bound in whatever order requests are served: of all who name a block one is the first to
compute it, and the others find it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.traffic import Traffic
from ridgeline.workload import Request, Trace
from ridgeline.workload.reuse import lru_curve, unlimited_hits

_BITS = 128  # of a block's name


@dataclass(frozen=True, slots=True)
class Oracle:
    """Shares of the prompts' tokens that were sent."""

    unlimited: float
    one_cache: float


def oracle(
    outcome: Outcome, traffic: Traffic, cache_tokens: int, block_tokens: Mapping[str, int]
) -> Oracle | None:
    """Beside what a run's caches found; `block_tokens` are those of engines, by model.

    None where nobody knows what prompts share: the traffic does not say it, it is too much to be
    kept, or models cut it into blocks of different sizes.
    """
    source = traffic.source
    if isinstance(source, Trace):
        size = source.block_tokens
        some = _of_trace(outcome, source.requests) if size else []
    else:
        sizes = {block_tokens[name] for name in traffic.models}
        size = sizes.pop()
        some = [] if sizes else _of_series(outcome)
    tokens = sum(one.prompt_tokens for one in some)
    if not tokens:
        return None
    curve = lru_curve(some, size)
    return Oracle(unlimited_hits(some, size) / tokens, curve.share(cache_tokens // size))


def _sent(outcome: Outcome) -> list[int]:
    columns = outcome.columns
    return [int(one) for one in np.sort(columns["number"][columns["sent_ns"] >= 0])]


def _of_trace(outcome: Outcome, requests: Sequence[Request]) -> list[Request]:
    """Its requests are numbered in its order."""
    return [requests[number] for number in _sent(outcome)]


def _of_series(outcome: Outcome) -> list[Request]:
    """As they came; blocks of an answer are told with its prompt's, and found by the next turn."""
    prompts = None if outcome.series is None else outcome.series.prompts
    if not prompts:
        return []
    columns = outcome.columns
    lengths = dict(zip(columns["number"].tolist(), columns["prompt_tokens"].tolist(), strict=True))
    sent = _sent(outcome)
    bare = [Request(0.0, lengths[number], 1) for number in sent if number not in prompts]
    among, places = set(sent), {name: place for place, name in enumerate(outcome.names)}
    return bare + [
        # Models share no cache: their blocks get names of their own.
        Request(0.0, tokens, 1, tuple((places[model] << _BITS) + block for block in blocks))
        for number, (model, tokens, blocks) in prompts.items()
        if number in among
    ]
