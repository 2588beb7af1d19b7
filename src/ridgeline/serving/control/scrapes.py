"""What the workers of a gateway said of their metrics, so that no sum of theirs ever goes back.

To Prometheus a counter that falls has begun again at zero, and all of it counts anew. So a worker
that does not answer stands with what it said last, and what a dead one had counted stays.
"""

from ridgeline.serving.gateway.metrics_merge import counted, merge


class Scrapes:
    """The latest text of each worker, and the counters of those that are gone."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[int, bytes]] = {}
        self._gone = b""

    def heard(self, worker: str, pid: int, text: bytes | None) -> None:
        """What the process `pid` that is this worker now answered; None where it did not."""
        known = self._latest.get(worker)
        if known is not None and known[0] != pid:
            self._gone = merge({"gone": self._gone, worker: counted(known[1])})
            del self._latest[worker]
        if text is not None:
            self._latest[worker] = (pid, text)

    def texts(self) -> dict[str, bytes]:
        """By worker; those that are gone are one more."""
        found = {worker: text for worker, (_, text) in self._latest.items()}
        return found | {"gone": self._gone} if self._gone else found
