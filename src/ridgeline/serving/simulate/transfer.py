"""Caches on their way from where they are computed to where they are decoded.

Each prefill replica sends over a link of its own, one cache after the other, each whole once it is
complete. What was sent arrives, whatever becomes of the sender.
"""

from ridgeline.serving.simulate.setup import Link
from ridgeline.timeline import NS


class Egress:
    """What one replica sends; without a link it takes no time."""

    def __init__(self, link: Link | None, bytes_per_token: float) -> None:
        self._latency_ns = round(link.latency_s * NS) if link else 0
        self._ns_per_token = bytes_per_token / link.bytes_per_s * NS if link else 0.0
        self._free_ns = 0

    def send(self, now_ns: int, tokens: int) -> int:
        """When the cache of so many tokens is there."""
        self._free_ns = max(now_ns, self._free_ns) + round(tokens * self._ns_per_token)
        return self._free_ns + self._latency_ns
