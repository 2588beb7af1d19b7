"""Streams of a workload: each asks one model as one tenant, all of them at the same time.

What a stream draws depends on the seed and its name, and on no other stream: whoever adds one, or
takes one away, leaves the others' requests as they were. Blocks of streams never have one name, so
what two of them have in common is only what a trace says.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice, takewhile

import numpy as np

from ridgeline.serving.simulate.clients import ClosedLoop, Manners, OpenLoop, Talkers
from ridgeline.serving.simulate.profile import Profile
from ridgeline.serving.simulate.talks import Talk, Turn
from ridgeline.workload import Arrivals, Request, Sizes, Trace, sized

BLOCK_TOKENS = 16
_POISSON = Arrivals("Poisson", 1.0)
_PROMPT, _OUTPUT = Sizes("lognormal", 1000, 0.8), Sizes("lognormal", 200, 0.8)
_TURNS = 6  # of chance, beside what `workload` draws
#: Names of blocks have 128 bits: the stream's, the request's or talk's, and the place in it.
_STREAM_BITS, _OWN_BITS = 80, 32


@dataclass(frozen=True, slots=True)
class Sessions:
    """Conversations: so many turns, each asked `think_s` after the answer to the one before it."""

    turns: Sizes
    think_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Stream:
    """Who asks whom for what, and how often: `rate_per_s`, or so many `clients`, or a `trace`.

    It begins at `from_s` and ends after `lasts_s` or `requests`, whichever comes first. With
    `sessions` the rate is of conversations, a prompt is what one turn adds, and `requests` counts
    conversations. All its prompts begin with the same `shared_tokens`, which its sizes include;
    those of conversations come on top.
    """

    name: str
    model: str = ""
    tenant: str = ""
    rate_per_s: float = 0.0
    clients: int = 0
    trace: Trace | None = None
    arrivals: Arrivals = _POISSON
    profile: Profile | None = None
    prompt: Sizes = _PROMPT
    output: Sizes = _OUTPUT
    shared_tokens: int = 0
    sessions: Sessions | None = None
    think_s: float = 0.0
    from_s: float = 0.0
    lasts_s: float | None = None
    requests: int | None = None

    @property
    def mean_per_s(self) -> float:
        """Requests a second on average while it lasts; 0 where its clients wait for answers."""
        if self.trace is not None:
            return self.trace.rate_per_s
        turns = self.sessions.turns.mean if self.sessions is not None else 1.0
        return self.rate_per_s * turns

    def crowd(
        self, seed: int, model: str, manners: Manners, faster: float = 1.0
    ) -> OpenLoop | ClosedLoop | Talkers:
        """Its clients, for one run. `model` is asked where it names none."""
        own = seed_of(seed, self.name)
        asked = self.model or model
        if self.sessions is not None:
            return Talkers(self._talks(own, faster), asked, manners)
        if self.clients:
            requests = self._blocked(sized(self.prompt, self.output, seed=own), own)
            some = islice(requests, self.requests)
            return ClosedLoop(
                some,
                asked,
                self.clients,
                think_s=self.think_s,
                block_tokens=BLOCK_TOKENS,
                manners=manners,
            )
        if self.trace is not None:
            blocks = self.trace.block_tokens
            return OpenLoop(
                self._recorded(seed, faster), asked, block_tokens=blocks, manners=manners
            )
        requests = self._blocked(self._timed(own, faster), own)
        return OpenLoop(requests, asked, block_tokens=BLOCK_TOKENS, manners=manners)

    def _recorded(self, seed: int, faster: float) -> Iterator[Request]:
        assert self.trace is not None, self.name
        for one in self.trace.drawn(seed):
            if self.lasts_s is not None and one.at_s >= self.lasts_s:
                return
            yield replace(
                one,
                at_s=self.from_s + one.at_s / faster,
                tenant=self.tenant or one.tenant,
                model=self.model or one.model,
            )

    def _timed(self, own: int, faster: float) -> Iterator[Request]:
        times = self._times_s(own, faster)
        for at_s, one in zip(times, sized(self.prompt, self.output, seed=own), strict=False):
            yield replace(one, at_s=at_s)

    def _times_s(self, own: int, faster: float) -> Iterator[float]:
        times = self.arrivals.times_s(self.rate_per_s * faster, own)
        if self.profile is not None:
            times = self.profile.warped(times)
        if (lasts_s := self.lasts_s) is not None:
            times = takewhile(lambda at_s: at_s < lasts_s, times)
        return (self.from_s + at_s for at_s in islice(times, self.requests))

    def _blocked(self, requests: Iterator[Request], own: int) -> Iterator[Request]:
        """With names for the blocks of their prompts, the shared ones first, and their tenant."""
        stream = _bits(own) << _STREAM_BITS
        shared = self.shared_tokens // BLOCK_TOKENS
        for number, one in enumerate(requests, 1):
            mine = stream + (number << _OWN_BITS)
            blocks = tuple(
                (stream if place < shared else mine) + place
                for place in range(one.prompt_tokens // BLOCK_TOKENS)
            )
            yield replace(one, blocks=blocks, tenant=self.tenant)

    def _talks(self, own: int, faster: float) -> Iterator[Talk]:
        assert self.sessions is not None, self.name
        turns = self.sessions.turns.draw(np.random.default_rng([own, _TURNS]))
        said = sized(self.prompt, self.output, seed=own)
        stream = _bits(own) << _STREAM_BITS
        shared = self.shared_tokens // BLOCK_TOKENS
        for number, at_s, many in zip(count(1), self._times_s(own, faster), turns, strict=False):
            mine, tokens, made = stream + (number << _OWN_BITS), self.shared_tokens, []
            for one in islice(said, many):
                tokens += one.prompt_tokens
                blocks = (tokens + one.output_tokens) // BLOCK_TOKENS
                names = ((stream if place < shared else mine) + place for place in range(blocks))
                made.append(Turn(tokens, one.output_tokens, tuple(names)))
                tokens += one.output_tokens
            name = f"{self.name}-{number}"
            yield Talk(name, at_s, tuple(made), self.sessions.think_s, self.tenant)


def seed_of(seed: int, name: str) -> int:
    """A seed of its own for whoever has this name."""
    drawn = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(drawn)


def _bits(own: int) -> int:
    """What tells a stream's blocks from another's."""
    return own & 0xFFFF_FFFF
