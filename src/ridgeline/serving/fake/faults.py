"""What goes wrong on purpose: which request meets which fault, by a seeded chance.

A fault is written as its kind and what differs from the defaults: `error,status=503,share=0.1`,
`cut,after=5`, `die,after=20,times=1`. Called by `server`; `answers` carries faults out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from ridgeline.errors import SpecError

#: kind -> what a client meets.
KINDS = {
    "error": "`status` instead of an answer (429 and 503 with a Retry-After)",
    "hang": "no byte, for as long as the client waits",
    "stall": "nothing more after `after` tokens, but the connection stays",
    "cut": "a closed connection after `after` tokens",
    "event": "an error event after `after` tokens of a stream",
    "malformed": "an event that is no JSON after `after` tokens of a stream",
    "split": "a stream's bytes in pieces that end anywhere",
    "no-usage": "an answer without its usage",
    "die": "the end of the whole replica after `after` tokens, as by kill -9",
}
_NUMBERS = {"share": float, "times": int, "after": int, "status": int, "retry_after_s": int}


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to fail. It hits a `share` of requests, at most `times` of them.

    `probes`: also requests by which a gateway asks for a first token; they are spared otherwise.
    """

    kind: str
    share: float = 1.0
    times: int | None = None
    after: int = 0
    status: int = 500
    retry_after_s: int = 1
    probes: bool = False


def parse(text: str) -> Fault:
    """A fault from its written form. Raises SpecError."""
    kind, *more = [part.strip() for part in text.split(",")]
    if kind not in KINDS:
        raise SpecError(
            f'"{kind}" is no kind of fault', where=text, remedy="one of " + ", ".join(KINDS)
        )
    fault = Fault(kind)
    for part in more:
        name, _, value = part.partition("=")
        if name == "probes" and not value:
            fault = replace(fault, probes=True)
            continue
        try:
            fault = replace(fault, **{name: _NUMBERS[name](value)})
        except (KeyError, ValueError):
            raise SpecError(
                f'"{part}" says nothing about a fault',
                where=text,
                remedy="NAME=NUMBER, with a name of " + ", ".join(_NUMBERS) + "; or probes",
            ) from None
    if not (0 <= fault.share <= 1 and 400 <= fault.status <= 599 and fault.after >= 0):
        raise SpecError(
            "share is 0 to 1, status 400 to 599, after 0 or more", where=text, remedy="correct it"
        )
    return fault


class Faults:
    """The faults of one replica; `now` may be replaced while it runs."""

    def __init__(self, faults: Sequence[Fault], seed: int) -> None:
        self._random = Random(seed)
        self._left: list[tuple[Fault, int | None]] = []
        self.now = list(faults)

    @property
    def now(self) -> list[Fault]:
        """Those that may still hit somebody."""
        return [fault for fault, left in self._left if left != 0]

    @now.setter
    def now(self, faults: Sequence[Fault]) -> None:
        self._left = [(fault, fault.times) for fault in faults]

    def draw(self, *, probe: bool) -> Fault | None:
        """What this request meets: the first fault that hits it, or none."""
        for place, (fault, left) in enumerate(self._left):
            if left == 0 or (probe and not fault.probes):
                continue
            if self._random.random() < fault.share:
                self._left[place] = (fault, None if left is None else left - 1)
                return fault
        return None
