"""Takes secrets out of what is about to be written: keys by their shape, and those we were told.

The law: it is the last thing that happens to a line, so nothing that is logged passes it by. Pure.
"""

import json
import re
from collections.abc import Iterable

MASK = "***"
#: A line without any of these (in small letters) has none of the shapes: a search is cheap.
_SIGNS = (b"bearer", b"rl-", b"sk-", b"://")
#: Ours begin with rl-, OpenAI's with sk-. Shorter words are names (a tenant may be `rl-search`).
_SHAPES = (
    r"(?i:bearer)(?:\s|%20)+[A-Za-z0-9._~+/=%-]+",
    r"(?:rl|sk)-[A-Za-z0-9_-]{16,}",
    r"(?<=://)[^\s/@\"'\\]+(?=@)",  # user and password of a URL
)


class Redactor:
    """Texts and lines without secrets: of the known shapes, and the exact ones that it was told."""

    def __init__(self, secrets: Iterable[str | None] = ()) -> None:
        self._told: set[str] = set()
        self.learn(*secrets)

    def learn(self, *secrets: str | None) -> None:
        """From now on these too, of whatever shape they are."""
        told = self._told
        told.update(form for secret in secrets if secret for form in _forms(secret))
        # The longest first: one secret may be the beginning of another.
        exact = [re.escape(secret) for secret in sorted(told, key=len, reverse=True)]
        pattern = "|".join([*exact, *_SHAPES])
        self._text = re.compile(pattern)
        self._bytes = re.compile(_encoded(pattern))
        self._signs = (*_SIGNS, *(_encoded(secret).lower() for secret in told))

    def text(self, text: str) -> str:
        """A text without secrets."""
        return self._text.sub(MASK, text)

    def line(self, line: bytes) -> bytes:
        """A line of JSON without secrets, still JSON: no shape takes a quote or a backslash."""
        small = line.lower()
        if any(sign in small for sign in self._signs):
            return self._bytes.sub(MASK.encode(), line)
        return line


def _encoded(text: str) -> bytes:
    """An environment variable may hold bytes that are no UTF-8."""
    return text.encode(errors="surrogateescape")


def _forms(secret: str) -> set[str]:
    """As it stands in a text, and as it stands in JSON with and without escaped letters."""
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
    }
