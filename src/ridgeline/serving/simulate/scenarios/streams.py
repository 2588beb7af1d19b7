"""So many answers at once, for ever: how long a token takes each of them, with and without guesses.

A closed loop keeps the batch full. All requests share their beginning, so that after the first of
them no step computes a prompt and each may be guessed in.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.simulate.clients import ClosedLoop
from ridgeline.serving.simulate.guesses import Guessing
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.timeline import NS
from ridgeline.workload import Request

_BLOCK_TOKENS = 16
_LEAST = 60  # requests, so that chance evens out for few streams too


@dataclass(frozen=True, slots=True)
class Streams:
    """What each asks for, and how many one after the other are simulated, at the least."""

    shared_blocks: int = 0
    output_tokens: int = 128
    rounds: int = 3

    @property
    def context_tokens(self) -> float:
        """What one has cached, on average."""
        return self.shared_blocks * _BLOCK_TOKENS + self.output_tokens / 2

    def requests(self, batch: int) -> list[Request]:
        """Of so many streams."""
        tokens = self.shared_blocks * _BLOCK_TOKENS + 1
        one = Request(0.0, tokens, self.output_tokens, tuple(range(self.shared_blocks)))
        return [one] * max(batch * self.rounds, _LEAST)


def token_s(
    on: Machine, batch: int, guessing: Guessing | None, streams: Streams, seed: int = 0
) -> float:
    """Of a stream, while the batch is full."""
    engine = Engine(on, batch, max(8192, 8 * batch), _BLOCK_TOKENS, guessing=guessing)
    serving = Serving((Model("chat", engine, slots=batch),), seed=seed)
    clients = ClosedLoop(streams.requests(batch), "chat", batch, block_tokens=_BLOCK_TOKENS)
    columns = simulate(serving, clients).columns
    full = columns["done_ns"] <= np.max(columns["at_ns"])
    took_ns = (columns["done_ns"] - columns["first_ns"])[full].sum()
    return float(took_ns) / NS / float((columns["said_tokens"] - 1)[full].sum())


def gain(on: Machine, batch: int, guessing: Guessing, streams: Streams, seed: int = 0) -> float:
    """Tokens a second with guesses, over those without."""
    plain_s = token_s(on, batch, None, streams, seed)
    return plain_s / token_s(on, batch, guessing, streams, seed)


def always(guessing: Guessing) -> Guessing:
    """The same in every step."""
    return replace(guessing, rule="always")


def last_batch(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The largest batch for which something holds, where it holds up to one and not beyond."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
