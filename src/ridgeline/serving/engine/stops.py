"""Stop strings, found across the borders of tokens, and never sent in part.

Used by `continuation`. Text that may turn out to be the beginning of a stop string is held back
until the next text decides.
"""

from collections.abc import Sequence


class StopStrings:
    """The stop strings of one request, prepared once for all its choices."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)
        #: Every beginning of a stop string that is not yet the whole of one.
        self.beginnings = frozenset(text[:end] for text in texts for end in range(1, len(text)))
        self.longest_beginning = max((len(text) - 1 for text in texts), default=0)


class StopSearch:
    """The search of one choice."""

    __slots__ = ("_held", "_stops", "found", "which")

    def __init__(self, stops: StopStrings) -> None:
        self._stops = stops
        self._held = ""
        self.found = False
        self.which: str | None = None  # the stop string that was met

    def feed(self, text: str) -> str:
        """The text that may be sent now. Once a stop string was met, `found` is set.

        Of several stop strings the one that is complete first counts, so that the answer does
        not depend on how the text was cut into tokens.
        """
        held = self._held + text
        texts = self._stops.texts
        ends = [(at + len(stop), at, stop) for stop in texts if (at := held.find(stop)) >= 0]
        if ends:
            self.found = True
            self._held = ""
            _, at, self.which = min(ends)
            return held[:at]
        kept = self._kept(held)
        self._held = held[len(held) - kept :]
        return held[: len(held) - kept]

    def flush(self) -> str:
        """What is still held, when no more text will come."""
        held, self._held = self._held, ""
        return held

    def _kept(self, held: str) -> int:
        """The length of the longest end of `held` that a stop string begins with."""
        for length in range(min(len(held), self._stops.longest_beginning), 0, -1):
            if held[-length:] in self._stops.beginnings:
                return length
        return 0
