"""What happened in a simulation, line by line, and a digest of all of it.

Two runs are the same where their digests are. Lines are kept only where somebody wants them.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

_AT_ONCE = 4096

#: Told now and then how far a run has come: its virtual time, and how many requests have ended.
Tick = Callable[[int, int], None]


class Log:
    """Told of each event at its instant. `keep` gets each line, as JSON; `tick` how far it is."""

    def __init__(self, keep: Callable[[str], None] | None = None, tick: Tick | None = None) -> None:
        self.events = 0
        self._keep = keep
        self._tick = tick
        self._ended = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._lines: list[str] = []

    def wrote(self, at_ns: int, kind: str, who: str, *what: Any) -> None:
        """One event: its kind, whom it is of, and what else there is to say."""
        self.events += 1
        self._lines.append(f"{at_ns} {kind} {who} {what}\n")
        if len(self._lines) >= _AT_ONCE:
            if self._tick is not None:
                self._ended += sum(" ended " in line for line in self._lines)
                self._tick(at_ns, self._ended)
            self._add()
        if self._keep is not None:
            self._keep(json.dumps({"at_ns": at_ns, "event": kind, "who": who, "what": what}))

    @property
    def digest(self) -> str:
        """Of all events so far."""
        self._add()
        return self._digest.hexdigest()

    def _add(self) -> None:
        self._digest.update("".join(self._lines).encode())
        self._lines.clear()
