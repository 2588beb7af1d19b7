"""The devices of one pool in virtual time: whoever wants some gets them, or waits in turn.

Who waits for many holds up who wants few behind him: else he might wait for ever.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Claim:
    """So many devices for somebody; `granted` says whether he has them."""

    count: int
    then: Callable[[], None]
    granted: bool = False


class Devices:
    """`take` some, and `give` them back."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._waiting: deque[Claim] = deque()

    def take(self, count: int, then: Callable[[], None]) -> Claim:
        """`then` is called once they are there, which may be now."""
        claim = Claim(count, then)
        self._waiting.append(claim)
        self._grant()
        return claim

    def give(self, claim: Claim) -> None:
        """They are not wanted any more, or never came."""
        if claim.granted:
            self.free += claim.count
        else:
            self._waiting.remove(claim)
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._waiting[0].count <= self.free:
            claim = self._waiting.popleft()
            self.free -= claim.count
            claim.granted = True
            claim.then()
