"""Chance by name: what is drawn depends on the seed and on whose draw it is, and on nothing else.

So one more request, or a replica that died, changes nobody else's draws, and two runs that are
compared have their chances in common.
"""

import hashlib


class Chances:
    """`bits` and `share` of a name: any strings and numbers."""

    def __init__(self, seed: int) -> None:
        self._key = seed.to_bytes(16, signed=True)

    def bits(self, *name: str | int) -> int:
        """64 random bits."""
        drawn = hashlib.blake2b(repr(name).encode(), digest_size=8, key=self._key)
        return int.from_bytes(drawn.digest())

    def share(self, *name: str | int) -> float:
        """Uniform in 0 to 1, 1 not included."""
        return (self.bits(*name) >> 11) / 2**53

    def exponential(self, *name: str | int) -> float:
        """Exponential with a mean of 1, by comparisons alone: the same on every machine.

        Source: von Neumann, Various techniques used in connection with random digits, 1951.
        """
        draw = whole = 0
        while True:
            first = last = self.share(*name, draw)
            draw, falls = draw + 1, 0
            while (following := self.share(*name, draw)) < last:
                last, draw, falls = following, draw + 1, falls + 1
            draw += 1
            if falls % 2 == 0:
                return whole + first
            whole += 1
