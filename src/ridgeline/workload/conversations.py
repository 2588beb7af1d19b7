"""Conversations as ShareGPT keeps them: texts without counts or times.

Each answer is a request whose prompt is all that was said before it. Text is never kept: only its
length, and a chained hash of each block of it.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

from ridgeline.workload.numbers import name
from ridgeline.workload.request import Request
from ridgeline.workload.rows import Row

BLOCK_TOKENS = 16
_TOKEN_BYTES = 4  # of English text, in the vocabularies of today
_BLOCK_BYTES = BLOCK_TOKENS * _TOKEN_BYTES
_ANSWERS = {"gpt", "chatgpt", "bard", "bing", "assistant", "model"}


def conversation(row: Row) -> Iterator[Request]:
    """A request for each answer in it."""
    session = name(row.get("id"))
    hashes = _Hashes()
    for turn in row["conversations"]:
        who, said = _turn(turn)
        if who in _ANSWERS and hashes.bytes:
            prompt = max(1, hashes.bytes // _TOKEN_BYTES)
            yield Request(
                0.0,
                prompt,
                max(1, len(said) // _TOKEN_BYTES) if said else 0,
                tuple(hashes.full),
                session=session,
            )
        hashes.add(said)


def _turn(turn: Any) -> tuple[str, bytes]:
    who = turn.get("from", turn.get("role"))
    said = turn.get("value", turn.get("content"))
    if not isinstance(who, str) or not isinstance(said, str):
        raise ValueError("a turn says not who said what (from and value)")
    return who, said.encode(errors="replace")


class _Hashes:
    """The names of the full blocks of what was said so far; each stands for all before it too."""

    def __init__(self) -> None:
        self.bytes = 0
        self.full: list[int] = []
        self._rest = b""

    def add(self, said: bytes) -> None:
        self.bytes += len(said)
        text = self._rest + said
        ends = len(text) - len(text) % _BLOCK_BYTES
        for start in range(0, ends, _BLOCK_BYTES):
            before = self.full[-1].to_bytes(8) if self.full else b""
            block = text[start : start + _BLOCK_BYTES]
            name = hashlib.blake2b(block, digest_size=8, key=before).digest()
            self.full.append(int.from_bytes(name))
        self._rest = text[ends:]
