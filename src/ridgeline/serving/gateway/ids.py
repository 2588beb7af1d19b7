"""The ids of requests: 128 random bits each, drawn many at a time.

Asking the system for chance lets go of the interpreter, and whoever wants it back waits while
another thread works (the ledger's commits): 16 bytes for each request cost up to 0.4 ms under load
(decisions/0022). Called by `proxy` and `routes`.
"""

import os

_AT_ONCE = 512


class Ids:
    """Draws ids; in a process that was forked, anew."""

    def __init__(self) -> None:
        self._drawn: list[str] = []
        os.register_at_fork(after_in_child=self._drawn.clear)

    def new(self) -> str:
        """`req-` and 32 hexadecimal digits, never the same."""
        if not self._drawn:
            digits = os.urandom(16 * _AT_ONCE).hex()
            self._drawn.extend(digits[at : at + 32] for at in range(0, len(digits), 32))
        return f"req-{self._drawn.pop()}"


new_id = Ids().new
