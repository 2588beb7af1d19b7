"""Which low-rank adapters an engine holds: so many slots, the longest unused one gives way. Pure.

An adapter that a request uses stays. So a request whose adapter is not there waits until it is
loaded, and where all slots are in use until one of them is not:

    take ──▶ "here"   it can run
         ──▶ "loads"  in a free slot, or in place of `evicts`, which nobody uses
         ──▶ "waits"  all are in use; ask again after a `give`
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Seat:
    """What became of a request's asking for its adapter."""

    kind: Literal["here", "loads", "waits"]
    reason: str
    evicts: str = ""


class AdapterSlots:
    """The owner of `slots` slots."""

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"{slots} slots hold no adapter")
        self.slots = slots
        self._users: OrderedDict[str, int] = OrderedDict()  # longest not asked for first

    @property
    def loaded(self) -> frozenset[str]:
        """The adapters that are there, or on their way."""
        return frozenset(self._users)

    @property
    def in_use(self) -> int:
        """Adapters that somebody uses."""
        return sum(users > 0 for users in self._users.values())

    def take(self, adapter: str) -> Seat:
        """A request wants it; unless it waits, it uses it until `give`."""
        if adapter in self._users:
            self._users[adapter] += 1
            self._users.move_to_end(adapter)
            return Seat("here", f"{adapter} is loaded")
        evicts = ""
        if len(self._users) >= self.slots:
            unused = next((one for one, users in self._users.items() if not users), None)
            if unused is None:
                return Seat("waits", f"all {self.slots} slots are in use")
            evicts = unused
            del self._users[evicts]
        self._users[adapter] = 1
        return Seat("loads", f"in place of {evicts}" if evicts else "in a free slot", evicts)

    def give(self, adapter: str) -> None:
        """A request has ended that used it; it stays until its slot is needed."""
        assert self._users[adapter] > 0, f"nobody uses {adapter}"
        self._users[adapter] -= 1
