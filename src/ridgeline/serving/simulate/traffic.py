"""What is asked of a platform: a recorded trace, or a seeded workload, open or in a closed loop.

One traffic and one seed always give the same requests, whatever they are asked of: so platforms
are compared with their chances in common.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, tee

from ridgeline.serving.simulate.clients import ClosedLoop, Manners, OpenLoop
from ridgeline.serving.simulate.profile import Profile
from ridgeline.workload import Arrivals, Request, Sizes, Trace, sized, synthetic


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
class Traffic:
    """Requests for one model. With a `loop` their times do not count."""

    source: Trace | Seeded
    model: str
    loop: Loop | None = None
    manners: Manners = field(default_factory=Manners)

    @property
    def name(self) -> str:
        """What it is called in reports."""
        source = self.source
        if isinstance(source, Trace):
            return source.name
        rate = f"{source.rate_per_s:g}/s, " if source.rate_per_s else ""
        arrivals = f"{source.arrivals.name}, " if source.rate_per_s else ""
        if source.profile is not None:
            arrivals += f"{source.profile.name}, "
        return f"{rate}{arrivals}prompts {source.prompt}, answers {source.output}"

    @property
    def rate_per_s(self) -> float:
        """Requests a second on average; 0 where none is given."""
        source = self.source
        if isinstance(source, Seeded):
            return source.rate_per_s
        lasts_s = source.requests[-1].at_s
        return len(source.requests) / lasts_s if lasts_s else 0.0

    def clients(self, seed: int, faster: float = 1.0) -> OpenLoop | ClosedLoop:
        """Who asks, for one run."""
        source = self.source
        if isinstance(source, Trace):
            block_tokens = source.block_tokens
            requests = iter(source.requests)
            if faster != 1.0:
                requests = (replace(one, at_s=one.at_s / faster) for one in source.requests)
        else:
            block_tokens, requests = 0, source.requests(seed, faster)
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
