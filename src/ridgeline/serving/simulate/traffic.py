"""What is asked of a platform: a recorded trace, a seeded workload, or several streams at once.

One traffic and one seed always give the same requests, whatever they are asked of: so platforms
are compared with their chances in common.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice, tee

import numpy as np

from ridgeline.serving.simulate.clients import ClosedLoop, Manners, OpenLoop, Several
from ridgeline.serving.simulate.profile import Profile
from ridgeline.serving.simulate.streams import Stream
from ridgeline.workload import Arrivals, Request, Sizes, Trace, sized, synthetic

_TENANTS = 5  # of chance, beside what `workload` draws


@dataclass(frozen=True, slots=True)
class Loop:
    """So many clients that each wait for an answer before they ask again."""

    clients: int
    think_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Seeded:
    """A workload that is drawn: `count` requests."""

    arrivals: Arrivals
    prompt: Sizes
    output: Sizes
    rate_per_s: float
    count: int
    profile: Profile | None = None

    @property
    def name(self) -> str:
        """What it is called in reports."""
        rate = f"{self.rate_per_s:g}/s, {self.arrivals.name}, " if self.rate_per_s else ""
        profile = f"{self.profile.name}, " if self.profile is not None else ""
        return f"{rate}{profile}prompts {self.prompt}, answers {self.output}"

    def requests(self, seed: int, faster: float) -> Iterator[Request]:
        """They, so many times as fast."""
        if not self.rate_per_s:
            return islice(sized(self.prompt, self.output, seed=seed), self.count)
        rate_per_s = self.rate_per_s * faster
        drawn = synthetic(self.arrivals, self.prompt, self.output, rate_per_s=rate_per_s, seed=seed)
        if self.profile is not None:
            return islice(_warped(drawn, self.profile), self.count)
        return islice(drawn, self.count)


def _warped(requests: Iterator[Request], profile: Profile) -> Iterator[Request]:
    steady, kept = tee(requests)
    times = profile.warped(one.at_s for one in steady)
    return (replace(one, at_s=at_s) for one, at_s in zip(kept, times, strict=False))


@dataclass(frozen=True, slots=True)
class Streams:
    """Several streams under one name."""

    name: str
    streams: tuple[Stream, ...]

    @property
    def rate_per_s(self) -> float:
        """Of all of them; 0 where one has none."""
        rates = [one.mean_per_s for one in self.streams]
        return sum(rates) if all(rates) else 0.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests for the model that each names, else for `model`. With a `loop` times do not count.

    Where `tenants` has names with their shares, each request is drawn to be of one of them.
    """

    source: Trace | Seeded | Streams
    model: str
    loop: Loop | None = None
    manners: Manners = field(default_factory=Manners)
    tenants: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """What it is called in reports."""
        return self.source.name

    @property
    def models(self) -> tuple[str, ...]:
        """All that are asked."""
        source = self.source
        if isinstance(source, Seeded):
            return (self.model,)
        if isinstance(source, Trace):
            named = [one.model or self.model for one in source.requests]
        else:
            named = [name for one in source.streams for name in _models(one, self.model)]
        return tuple(dict.fromkeys(named))

    @property
    def rate_per_s(self) -> float:
        """Requests a second on average; 0 where none is given."""
        return self.source.rate_per_s

    def clients(self, seed: int, faster: float = 1.0) -> OpenLoop | ClosedLoop | Several:
        """Who asks, for one run."""
        source = self.source
        if isinstance(source, Streams):
            crowds = [one.crowd(seed, self.model, self.manners, faster) for one in source.streams]
            return Several(crowds)
        if isinstance(source, Trace):
            block_tokens = source.block_tokens
            requests = iter(source.drawn(seed))
            if faster != 1.0:
                requests = (replace(one, at_s=one.at_s / faster) for one in source.drawn(seed))
        else:
            block_tokens, requests = 0, source.requests(seed, faster)
        if self.tenants:
            requests = _of_tenants(requests, self.tenants, seed)
        if self.loop is None:
            return OpenLoop(requests, self.model, block_tokens=block_tokens, manners=self.manners)
        return ClosedLoop(
            requests,
            self.model,
            self.loop.clients,
            think_s=self.loop.think_s,
            block_tokens=block_tokens,
            manners=self.manners,
        )


def _models(stream: Stream, model: str) -> Iterable[str]:
    if stream.model or stream.trace is None:
        return (stream.model or model,)
    return (one.model or model for one in stream.trace.requests)


def _of_tenants(
    requests: Iterable[Request], tenants: tuple[tuple[str, float], ...], seed: int
) -> Iterator[Request]:
    rng = np.random.default_rng([seed, _TENANTS])
    upto = np.array(list(accumulate(share for _, share in tenants)))
    for one in requests:
        place = int(np.searchsorted(upto, rng.random() * upto[-1], side="right"))
        yield replace(one, tenant=tenants[min(place, len(tenants) - 1)][0])
