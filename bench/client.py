"""The one closed-loop streaming client that both sides of a comparison meet.

Law of this file: the two servers get byte-equal requests, and a run in which a server did other
work than asked (another count of prompt or output tokens) or in which the client itself was short
of CPU is refused, not reported. `bench/engine.py` calls it.
"""

import asyncio
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from tokenizers import Tokenizer

from ridgeline.errors import BenchError

CLIENT_CPU_SHARE_MOST = 0.5  # of one core; beyond that the client's own queueing shows in TTFT


@dataclass(frozen=True, slots=True)
class Timing:
    """One request: to the first text, then between tokens on average, and how many came."""

    ttft_s: float
    tpot_s: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Load:
    """One closed-loop run: `timings` in the order in which requests ended."""

    timings: Sequence[Timing]
    wall_s: float
    client_cpu_s: float

    @property
    def tokens_per_s(self) -> float:
        """Output tokens over the whole run, ramp and tail included."""
        return sum(t.tokens for t in self.timings) / self.wall_s

    def ttft_s(self, share: float) -> float:
        """The time to first token that `share` (0..1) of the requests did not exceed."""
        return quantile([t.ttft_s for t in self.timings], share)

    def tpot_s(self, share: float) -> float:
        """The time per further token that `share` (0..1) of the requests did not exceed."""
        return quantile([t.tpot_s for t in self.timings], share)


def quantile(values: Sequence[float], share: float) -> float:
    """The nearest-rank quantile: always one of the values; `share` is 0..1."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, round(share * (len(ranked) - 1)))]


class Prompts:
    """Prompts of exact length, made of plain English words, no two with a common beginning."""

    def __init__(self, tokenizer_json: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer_json))
        texts = (self._tokenizer.decode([token]) for token in range(3000, 12000))
        self._words = [t for t in texts if len(t) > 3 and t[0] == " " and t[1:].isalpha()]

    def draw(self, tokens: int, count: int, seed: int) -> list[str]:
        """`count` prompts of `tokens` tokens each, the same for the same seed."""
        rng = random.Random(seed)
        return [self._one(tokens, rng) for _ in range(count)]

    def _one(self, tokens: int, rng: random.Random) -> str:
        while True:  # now and then two words merge into other tokens: draw again
            text = "".join(rng.choices(self._words, k=tokens))
            if len(self._tokenizer.encode(text, add_special_tokens=False).ids) == tokens:
                return text


@dataclass(frozen=True, slots=True)
class Target:
    """A server, the model it serves, and what each request asks of it.

    `asks` are further fields of each request (a temperature, a schema).
    """

    url: str
    model: str
    prompt_tokens: int
    output_tokens: int
    asks: Mapping[str, Any] = field(default_factory=dict)

    def body(self, prompt: str) -> dict[str, Any]:
        """The request: greedy unless asked otherwise, and of fixed length: it may not end early."""
        return {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": self.output_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.asks,
        }

    def check(self, usage: dict[str, Any]) -> None:
        """Raises BenchError unless the server counted the work that was asked for."""
        found = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
        if found != (self.prompt_tokens, self.output_tokens):
            raise BenchError(
                f"asked for {self.prompt_tokens} + {self.output_tokens} tokens, "
                f"the server counted {found[0]} + {found[1]}",
                where=self.url,
                remedy="compare the tokenizers; see that ignore_eos is honoured",
            )


def texts_in(event: dict[str, Any]) -> Iterator[str]:
    """The pieces of text in one streamed event."""
    return (choice["text"] for choice in event.get("choices", ()) if choice.get("text"))


async def complete(session: aiohttp.ClientSession, target: Target, prompt: str) -> Timing:
    """Streams one completion and times it. Raises BenchError when it is not what was asked."""
    began_s = time.perf_counter()
    first_s = last_s = 0.0
    usage: dict[str, Any] = {}
    async with session.post(f"{target.url}/v1/completions", json=target.body(prompt)) as answer:
        if answer.status != 200:
            said = (await answer.text())[:300]
            raise BenchError(f"answered {answer.status}: {said}", where=target.url)
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            if any(texts_in(event)):
                last_s = time.perf_counter()
                first_s = first_s or last_s
    target.check(usage)
    between = max(target.output_tokens - 1, 1)
    return Timing(first_s - began_s, (last_s - first_s) / between, target.output_tokens)


async def drive(target: Target, prompts: Sequence[str], concurrency: int) -> Load:
    """Keeps `concurrency` requests in flight until all prompts are answered.

    Raises BenchError when a request fails or the client used too much CPU to be trusted.
    """
    waiting = iter(prompts)
    timings: list[Timing] = []
    timeout = aiohttp.ClientTimeout(total=1200)
    # One connection a request: llama-server closes them, and both sides meet the same client.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def lane() -> None:
            while (prompt := next(waiting, None)) is not None:
                timings.append(await complete(session, target, prompt))

        began_s, cpu_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*(lane() for _ in range(concurrency)))
        load = Load(timings, time.perf_counter() - began_s, time.process_time() - cpu_s)
    if load.client_cpu_s > CLIENT_CPU_SHARE_MOST * load.wall_s:
        raise BenchError(
            f"the client used {load.client_cpu_s / load.wall_s:.2f} of a core", where=target.url
        )
    return load


async def first_model(url: str) -> str:
    """The id of the model that a server lists first. Raises aiohttp.ClientError while it starts."""
    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        session.get(f"{url}/v1/models") as answer,
    ):
        models = await answer.json()
    return str(models["data"][0]["id"])
