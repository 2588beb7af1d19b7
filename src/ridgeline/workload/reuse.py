"""How much of the prompts a prefix cache could have known: of no limit, and of every size at once.

The law of this room: a block that a request names is found where the cache holds it before the
request comes, and only the leading run of found blocks counts, cut at the length of the prompt.
Afterwards all its blocks are the most recently used. These are bounds for one cache that sees all
requests in order; caches of several replicas see each less.

Sizes are all found in one pass, since a cache of least recently used blocks holds whatever a
smaller one does (Mattson et al., Evaluation techniques for storage hierarchies, 1970): a block is
found where fewer others were used since its own last use than there is room for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_Numbers = NDArray[np.int64]


class Prompt(Protocol):
    """What is looked at of a request: `workload.Request` is one."""

    @property
    def prompt_tokens(self) -> int:
        """Of the whole prompt."""

    @property
    def blocks(self) -> Sequence[int]:
        """Its leading blocks; equal names mean equal text up to there."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Tokens found by the size of the cache: `needs_blocks` ascend, `hit_tokens` add up.

    A cache of n blocks finds the `hit_tokens` beside the last entry of `needs_blocks` up to n.
    """

    prompt_tokens: int
    needs_blocks: _Numbers
    hit_tokens: _Numbers

    def hits(self, blocks: int | None = None) -> int:
        """Tokens that a cache of so many blocks finds; without a number one without limit."""
        if blocks is None:
            return int(self.hit_tokens[-1]) if len(self.hit_tokens) else 0
        place = int(np.searchsorted(self.needs_blocks, blocks, side="right"))
        return int(self.hit_tokens[place - 1]) if place else 0

    def share(self, blocks: int | None = None) -> float:
        """The same as a share of all prompt tokens."""
        return self.hits(blocks) / self.prompt_tokens if self.prompt_tokens else 0.0


def unlimited_hits(requests: Iterable[Prompt], block_tokens: int) -> int:
    """Prompt tokens whose blocks were all seen before: what no cache can beat."""
    seen: set[int] = set()
    tokens = 0
    for one in requests:
        run = 0
        for block in one.blocks:
            if block not in seen:
                break
            run += 1
        tokens += min(run * block_tokens, one.prompt_tokens)
        seen.update(one.blocks)
    return tokens


def lru_hits(requests: Iterable[Prompt], block_tokens: int, blocks: int) -> int:
    """Prompt tokens that a cache of so many least recently used blocks finds."""
    return lru_curve(requests, block_tokens).hits(blocks)


def lru_curve(requests: Iterable[Prompt], block_tokens: int) -> Curve:
    """What caches of all sizes find. Takes n log n in the blocks of all prompts."""
    kept = list(requests)
    prompt_tokens = sum(one.prompt_tokens for one in kept)
    before, starts = _last_uses(kept)
    needs = _others_since(before, starts) + 1  # its own place
    lengths = [len(one.blocks) for one in kept]
    needed: list[int] = []
    tokens: list[int] = []
    at = 0
    for one, length in zip(kept, lengths, strict=True):
        found, room, left = before[at : at + length], 0, one.prompt_tokens
        own = needs[at : at + length].tolist()
        for use, need in zip(found.tolist(), own, strict=True):
            if use < 0 or left <= 0:
                break
            room = max(room, need)  # only a run counts: it needs what its hungriest block does
            needed.append(room)
            tokens.append(min(block_tokens, left))
            left -= block_tokens
        at += length
    return _summed(prompt_tokens, needed, tokens)


def _summed(prompt_tokens: int, needed: list[int], tokens: list[int]) -> Curve:
    rooms, places = np.unique(np.array(needed, np.int64), return_inverse=True)
    found = np.zeros(len(rooms), np.int64)
    np.add.at(found, places, np.array(tokens, np.int64))
    return Curve(prompt_tokens, rooms, np.cumsum(found))


def _last_uses(requests: Sequence[Prompt]) -> tuple[_Numbers, _Numbers]:
    """For each use of a block: the last use of it before its request, and where the request begins.

    Uses are numbered in order; -1 where there was none.
    """
    last: dict[int, int] = {}
    before: list[int] = []
    starts: list[int] = []
    for one in requests:
        start, blocks = len(before), one.blocks
        before.extend(last.get(block, -1) for block in blocks)
        starts.extend([start] * len(blocks))
        last.update(zip(blocks, range(start, len(before)), strict=True))
    return np.array(before, np.int64), np.array(starts, np.int64)


def _others_since(before: _Numbers, starts: _Numbers) -> _Numbers:
    """How many different blocks were used from after `before` until `starts`.

    Those are the uses in between, less the ones whose block is used again in between: of the first
    `starts` uses, those whose own last use is after `before`. The first n uses are cut into runs
    whose lengths are the powers of two that n is made of, each run sorted once for all who ask.
    """
    between = starts - 1 - before
    again = np.zeros(len(before), np.int64)
    length = 1
    while length <= len(before):
        runs = len(before) // length
        ranked = np.sort(before[: runs * length].reshape(runs, length), axis=1)
        ascending = (ranked + np.arange(runs)[:, None] * (len(before) + 1)).ravel()
        asks = np.flatnonzero(starts & length)
        run = (starts[asks] // length) - 1
        upto = np.searchsorted(ascending, before[asks] + run * (len(before) + 1), side="right")
        again[asks] += (run + 1) * length - upto
        length *= 2
    return between - again
