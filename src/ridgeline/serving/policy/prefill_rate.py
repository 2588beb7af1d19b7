"""How fast a model's replicas prefill at their best, by what requests met. Pure.

The gateway's fleet keeps one for each model and makes the router's tau of it. It is told of prompts
that had a replica for themselves: their tokens over the time to the first token are a rate. Many
of those are below the peak (a little prompt does not fill a step), some far above it (the replica
had cached what nobody knew of). So little prompts are left out, and the peak is taken to be the
90th percentile of the recent ones, not the greatest.
"""

from dataclasses import dataclass

LEAST_TOKENS = 512
_RECENT = 64
_BELIEVED = 4
_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class PeakRate:
    """The peak prefill rate of one replica, and where the number comes from."""

    tokens_per_s: float = 8_000.0
    source: str = "assumed 8,000 tokens/s"
    recent: tuple[float, ...] = ()

    def saw(self, tokens: int, took_ns: int) -> "PeakRate":
        """The rate after one more prompt, of so many tokens that no cache had."""
        if tokens < LEAST_TOKENS or took_ns <= 0:
            return self
        recent = (*self.recent, tokens * 1e9 / took_ns)[-_RECENT:]
        if len(recent) < _BELIEVED:
            return PeakRate(self.tokens_per_s, self.source, recent)
        peak = sorted(recent)[int(_SHARE * len(recent))]
        source = f"measured {peak:,.0f} tokens/s over {len(recent)} prompts"
        return PeakRate(peak, source, recent)
