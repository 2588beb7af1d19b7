"""Routing rules beside each other: the same talks over the same replicas, one rule at a time.

The platform is `world`'s, with one gateway worker and nothing but routing to decide. What a rule
saves is in the prompt tokens that were computed, what it costs in how uneven the load is.
"""

from collections.abc import Sequence

import numpy as np

from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.simulate.clients import Talkers
from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.talks import Talk
from ridgeline.serving.simulate.world import simulate
from ridgeline.timeline import NS

_MODEL = "chat"


def routed(
    talks: Sequence[Talk],
    rule: str,
    machine: Machine,
    *,
    replicas: int = 8,
    block_tokens: int = 16,
    max_batched_tokens: int = 2048,
    seed: int = 0,
) -> Outcome:
    """All talks to their ends, by this rule."""
    engine = Engine(machine, 256, max_batched_tokens, block_tokens)
    model = Model(_MODEL, engine, replicas, rule=rule)
    return simulate(Serving((model,), seed=seed), Talkers(talks, _MODEL))


def prefilled_tokens(outcome: Outcome) -> int:
    """Prompt tokens that were computed."""
    columns = outcome.columns
    return int((columns["prompt_tokens"] - columns["cached_tokens"]).sum())


def loads(outcome: Outcome) -> list[float]:
    """Each replica's mean number of requests there, over the whole run."""
    columns = outcome.columns
    there_s = (columns["done_ns"] - columns["sent_ns"]) / NS
    names = [outcome.names.index(one.name) for one in outcome.replicas if one.name in outcome.names]
    found = [float(there_s[columns["replica"] == name].sum()) for name in names]
    found += [0.0] * (len(outcome.replicas) - len(names))  # no request ever went there
    return [each / outcome.lasted_s for each in found]


def max_over_mean(outcome: Outcome) -> float:
    """The most loaded replica beside the mean."""
    found = loads(outcome)
    return max(found) / float(np.mean(found))
