"""Where a prompt is computed, where some replicas only prefill and others decode. Pure.

A prompt is computed apart, so that it delays nobody's tokens, unless so little of it is left to
compute that sending its cache costs more than that. Where no replica prefills now, those that
decode do it all.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Computed:
    """Whether a prompt is computed apart from where it is decoded, and why."""

    apart: bool
    reason: str


def computed(uncached_tokens: int, least_tokens: int, *, is_ready: bool) -> Computed:
    """`is_ready` says whether a replica that prefills is; `least_tokens` are worth the way."""
    if not is_ready:
        return Computed(apart=False, reason="no replica that prefills is ready")
    if uncached_tokens < least_tokens:
        said = f"{uncached_tokens:,} tokens to compute, fewer than {least_tokens:,}"
        return Computed(apart=False, reason=said)
    return Computed(apart=True, reason=f"{uncached_tokens:,} tokens to compute")
