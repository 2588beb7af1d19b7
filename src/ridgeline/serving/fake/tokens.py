"""A tokenizer that needs no files, and text that needs no model.

A token is up to four ASCII characters, or one character of any other kind; it spells its own text,
so encoding is reversible and no vocabulary exists. What a fake replica says at a position is a
function of the prompt, the seed and that position alone: an answer that is continued elsewhere goes
on exactly as it would have.
"""

import hashlib
import re
import struct
from array import array
from collections.abc import Iterable, Sequence

#: Ends every message of a chat; spells nothing.
END = 0
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_RUNS = re.compile("[\x01-\x7f]+|[^\x01-\x7f]")
#: Marks a token that is one character outside ASCII (or NUL), in its lowest byte.
_WIDE = 0x80
_SAID = [
    int.from_bytes(f" {first}{vowel}{last}".encode(), "little")
    for first in "bcdfghjklmnprstvwz"
    for vowel in "aeiou"
    for last in "bdgklmnprst"
]


def encode(text: str) -> list[int]:
    """The ids of a text."""
    if text.isascii() and "\0" not in text:
        return _ascii(text)
    ids: list[int] = []
    for run in _RUNS.findall(text):
        ids += _ascii(run) if run.isascii() and run != "\0" else [ord(run) << 8 | _WIDE]
    return ids


def decode(ids: Iterable[int]) -> str:
    """The text of ids; ids that no text has become replacement characters."""
    return "".join(map(_text, ids))


def chat(messages: Iterable[tuple[str, str]]) -> list[int]:
    """A conversation's ids, (role, text) each, up to where the assistant begins to speak.

    Messages are encoded one by one: a conversation that goes on has the earlier one as its prefix.
    """
    ids: list[int] = []
    for role, text in messages:
        ids += encode(f"<{role}>") + encode(text) + [END]
    return ids + encode("<assistant>")


def stream_key(prompt: Sequence[int], seed: int, choice: int) -> int:
    """What one choice's tokens depend on."""
    hashed = hashlib.blake2b(array("Q", prompt).tobytes(), digest_size=8)
    hashed.update(struct.pack("<qI", seed, choice))
    return int.from_bytes(hashed.digest(), "little")


def token_at(key: int, position: int) -> int:
    """The token that this choice has at a position, whenever it is asked for."""
    value = (key + (position + 1) * _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    return _SAID[(value ^ (value >> 31)) % len(_SAID)]


def _ascii(text: str) -> list[int]:
    spelled = text.encode()
    spelled += bytes(-len(spelled) % 4)
    return list(struct.unpack(f"<{len(spelled) // 4}I", spelled))


def _text(token: int) -> str:
    if token & _WIDE:
        point = token >> 8
        return chr(point) if point <= 0x10FFFF else "�"
    spelled = (token & 0xFFFFFFFF).to_bytes(4, "little").rstrip(b"\0")
    return spelled.decode("ascii", "replace")
