"""The talks of `bench/routing.py`, played over HTTP, and what came of them.

Law of this file: the same case has the same arrivals and lengths for every router, and a text that
no replica has seen before: every block of it begins with the run's own salt. A chat's next turn
carries the answer that really came.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import aiohttp

from client import quantile
from ridgeline.errors import BenchError
from ridgeline.serving.simulate.talks import Talk, Turn
from routing_fleet import CHAT, MODEL, look
from servers import Server

_DIGEST_TOKENS = 16  # 64 characters: the fake's tokens are four each
LOOK_EVERY_S = 0.25
MOST_S = 900.0


@dataclass(frozen=True, slots=True)
class Case:
    """A load: its talks, and how many tokens of system text all of them share.

    Blocks of `block_tokens` are named by the turns of single requests.
    """

    name: str
    talks: Sequence[Talk]
    system_tokens: int = 0
    block_tokens: int = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    ttft_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """One case through one router."""

    asked: Sequence[Asked]
    prefilled_tokens: float
    loads: Sequence[float]
    wall_s: float

    @property
    def ttft_p99_s(self) -> float:
        """Of all requests, nearest rank."""
        return quantile([one.ttft_s for one in self.asked], 0.99)

    @property
    def total_p99_s(self) -> float:
        """Of all requests, to their last token."""
        return quantile([one.total_s for one in self.asked], 0.99)

    @property
    def max_over_mean(self) -> float:
        """The most loaded replica's mean number of requests beside the mean of all."""
        return max(self.loads) * len(self.loads) / max(sum(self.loads), 1e-9)

    def goodput_per_s(self, ttft_s: float) -> float:
        """Requests a second whose first token came in time."""
        return sum(one.ttft_s <= ttft_s for one in self.asked) / self.wall_s


def text(salt: str, name: object, tokens: int) -> str:
    """So many tokens of text that nobody else has: sixteen for each digest."""
    digests = -(-tokens // _DIGEST_TOKENS)
    said = (blake2b(f"{salt}/{name}/{n}".encode(), digest_size=32) for n in range(digests))
    return "".join(digest.hexdigest() for digest in said)[: 4 * tokens]


async def play(case: Case, router: Server, replicas: Sequence[Server], salt: str) -> Run:
    """All talks of a case through a router."""
    timeout = aiohttp.ClientTimeout(total=MOST_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        watch = _Watch(session, [one.url for one in replicas])
        before_tokens = await watch.computed_tokens()
        watching = asyncio.create_task(watch.loads_forever())
        player = _Player(session, router.url, case, salt)
        began_s = time.perf_counter()
        try:
            await asyncio.gather(*(player.talk(talk, began_s) for talk in case.talks))
        finally:
            watching.cancel()
        wall_s = time.perf_counter() - began_s
        computed = await watch.computed_tokens() - before_tokens
        return Run(player.asked, computed, watch.mean_loads(), wall_s)


class _Watch:
    """Looks at the replicas while a case is played."""

    def __init__(self, session: aiohttp.ClientSession, urls: Sequence[str]) -> None:
        self._session = session
        self._urls = urls
        self._sums = [0.0] * len(urls)
        self._looks = 0

    async def computed_tokens(self) -> float:
        """Prompt tokens that no cache had, over all replicas since they started."""
        seen = [await look(self._session, url) for url in self._urls]
        return sum(one.asked_tokens - one.cached_tokens for one in seen)

    async def loads_forever(self) -> None:
        """Adds up what is at each replica, until cancelled."""
        while True:
            seen = [await look(self._session, url) for url in self._urls]
            self._sums = [total + one.load for total, one in zip(self._sums, seen, strict=True)]
            self._looks += 1
            await asyncio.sleep(LOOK_EVERY_S)

    def mean_loads(self) -> list[float]:
        """Each replica's mean number of requests."""
        return [total / max(self._looks, 1) for total in self._sums]


class _Player:
    """Says what the talks say, when they say it."""

    def __init__(self, session: aiohttp.ClientSession, url: str, case: Case, salt: str) -> None:
        self._session = session
        self._url = f"{url}{CHAT}"
        self._case = case
        self._salt = salt
        self.asked: list[Asked] = []

    async def talk(self, talk: Talk, began_s: float) -> None:
        """One talk, turn after turn."""
        await asyncio.sleep(max(0.0, began_s + talk.at_s - time.perf_counter()))
        messages: list[dict[str, str]] = []
        said_tokens = self._case.system_tokens
        if said_tokens:
            system = text(self._salt, "system", said_tokens)
            messages.append({"role": "system", "content": system})
        for number, turn in enumerate(talk.turns):
            if number:
                await asyncio.sleep(talk.think_s)
            content = self._said(talk, number, turn, turn.prompt_tokens - said_tokens)
            messages.append({"role": "user", "content": content})
            answer = await self._ask(messages, turn.output_tokens)
            messages.append({"role": "assistant", "content": answer})
            said_tokens = turn.prompt_tokens + turn.output_tokens

    def _said(self, talk: Talk, number: int, turn: Turn, new_tokens: int) -> str:
        """A turn's own text; of a single request the text of its blocks, which others share."""
        if len(talk.turns) > 1:
            return text(self._salt, f"{talk.name}/{number}", new_tokens)
        size = self._case.block_tokens
        blocks = turn.stream[: turn.prompt_tokens // size]
        shared = "".join(text(self._salt, block, size) for block in blocks)
        return shared + text(self._salt, talk.name, turn.prompt_tokens - len(blocks) * size)

    async def _ask(self, messages: Sequence[dict[str, str]], output_tokens: int) -> str:
        """The answer's text. BenchError where it is none, or not as long as was asked for."""
        body = {"model": MODEL, "messages": messages, "max_tokens": output_tokens, "stream": True}
        began_s = time.perf_counter()
        first_s, parts = 0.0, []
        async with self._session.post(self._url, json=body) as answer:
            if answer.status != 200:
                raise BenchError(f"status {answer.status}: {(await answer.text())[:300]}")
            async for line in answer.content:
                if said := _content(line):
                    first_s = first_s or time.perf_counter()
                    parts.append(said)
        if not parts:
            raise BenchError(f"{self._url} answered without a token")
        self.asked.append(Asked(first_s - began_s, time.perf_counter() - began_s))
        return "".join(parts)


def _content(line: bytes) -> str:
    """The text in one line of an event stream."""
    if not line.startswith(b"data: {"):
        return ""
    event: dict[str, Any] = json.loads(line[6:])
    if "error" in event:
        raise BenchError(f"an answer ended with an error: {event['error']}")
    return "".join(choice.get("delta", {}).get("content") or "" for choice in event["choices"])
