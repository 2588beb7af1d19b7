"""Mixed requests from the real `openai` client: two tenants that always queue, one with limits.

alpha asks for whole answers mostly and beta for streams mostly, so that who is charged for only one
of the two gets ahead. Clients leave in the midst of a stream and while they queue. `capped` meets
its limits: "later" where they are full for now, "never" where a request is larger than one.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import openai
from chaos_tap import WIRE, Tap, Wire

#: How many clients of each backlogged tenant ask at once, and the most tokens of an answer.
CLIENTS = 20
MOST_TOKENS = 24
LEAST_TOKENS = 8
NEVER_TOKENS = 100_000
#: The longest prompt, whoever counts its tokens.
INPUT_TOKENS = 60
_PATIENCE_S = 120.0
_QUEUE_S = (0.02, 0.3)
_CAPPED_EVERY = 8

_MIX = {
    "alpha": {"whole": 60, "stream": 12, "completion": 8, "leaves": 8, "queue": 6, "embed": 6},
    "beta": {"whole": 12, "stream": 52, "completion": 12, "leaves": 12, "queue": 6, "embed": 6},
    "capped": {"whole": 30, "stream": 20, "two": 20, "two-stream": 20, "never": 10},
}
_STREAMS = frozenset({"stream", "completion", "leaves", "two-stream"})


@dataclass(slots=True, eq=False)
class Asked:
    """One request, and how it ended for its client.

    `end`: answered, done (a stream's [DONE]), error event, refused (a status), left, broken (the
    connection), or silent: a stream that just ended, which must never be.
    """

    number: int
    tenant: str
    kind: str
    wire: Wire = field(default_factory=Wire)
    began_s: float = 0.0
    ended_s: float = 0.0
    tokens: int = 0
    usage: tuple[int, int] | None = None
    end: str = ""

    @property
    def id(self) -> str:
        """The gateway's id; empty where no header came."""
        return self.wire.request_id

    @property
    def streams(self) -> bool:
        return self.kind in _STREAMS

    def __str__(self) -> str:
        said = f"{self.id or 'no id'} ({self.tenant}, {self.kind}, {self.wire.status})"
        return f"{said}: {self.end} after {self.tokens} tokens"


class Traffic:
    """All clients. `pulse` is set whenever a token arrives or a request ends."""

    def __init__(self, url: str, keys: Mapping[str, str], seed: int, requests: int) -> None:
        self.asked: list[Asked] = []
        self.open: set[Asked] = set()
        self.ended = 0
        self.pulse = asyncio.Event()
        #: More requests follow also after `requests`, for as long as somebody needs them.
        self.is_needed = True
        #: When clients stopped to ask for more, from when on queues run empty.
        self.stopped_ns = 0
        self._random = Random(seed)
        self._requests = requests
        self._clients = {tenant: _client(url, key) for tenant, key in keys.items()}
        self._capped: set[asyncio.Task[None]] = set()

    @property
    def goes_on(self) -> bool:
        """Whether clients ask for more."""
        return self.is_needed or len(self.asked) < self._requests

    async def run(self) -> None:
        """Until every request has ended."""
        loops = [self._loop(tenant) for tenant in ("alpha", "beta") for _ in range(CLIENTS)]
        try:
            async with asyncio.TaskGroup() as group:
                for loop in loops:
                    group.create_task(loop)
            while self._capped:
                await asyncio.wait(self._capped)
        finally:
            self.pulse.set()
            for client in self._clients.values():
                await client.close()

    def ends(self) -> Counter[str]:
        return Counter(one.end for one in self.asked)

    async def _loop(self, tenant: str) -> None:
        while self.goes_on:
            await self._ask(self._next(tenant))
        self.stopped_ns = self.stopped_ns or time.time_ns()

    def _next(self, tenant: str) -> Asked:
        mix = _MIX[tenant]
        kind = self._random.choices(list(mix), list(mix.values()))[0]
        asked = Asked(len(self.asked), tenant, kind)
        self.asked.append(asked)
        return asked

    async def _ask(self, asked: Asked) -> None:
        WIRE.set(asked.wire)
        asked.began_s = time.monotonic()
        self.open.add(asked)
        try:
            asked.end = await self._end(asked)
        finally:
            asked.ended_s = time.monotonic()
            self.open.discard(asked)
            self.ended += 1
            self.pulse.set()
        if asked.tenant != "capped" and self.ended % _CAPPED_EVERY == 0 and self.goes_on:
            task = asyncio.create_task(self._ask(self._next("capped")))
            self._capped.add(task)
            task.add_done_callback(self._capped.discard)

    async def _end(self, asked: Asked) -> str:
        queue_s = self._random.uniform(*_QUEUE_S)
        try:
            async with asyncio.timeout(queue_s if asked.kind == "queue" else _PATIENCE_S):
                return await self._answer(asked)
        except TimeoutError:
            return "left" if asked.kind == "queue" else "hung"
        except openai.APIStatusError:
            return "refused"
        except openai.APIConnectionError:
            return "broken"
        except openai.APIError:  # what an error event raises
            return "error event"
        except OSError:
            return "broken"
        except Exception as error:  # of the transport under the client, while a stream is read
            if type(error).__module__.startswith(("httpx2", "httpcore")):
                return "broken"
            raise

    async def _answer(self, asked: Asked) -> str:
        client, given = self._clients[asked.tenant], self._words(asked)
        most = self._random.randint(LEAST_TOKENS, MOST_TOKENS)
        if asked.kind == "embed":
            told = await client.embeddings.create(model="m", input=given)
            asked.usage = told.usage.prompt_tokens, 0
            return "answered"
        options: dict[str, Any] = {"model": "m", "max_tokens": most}
        if asked.kind == "never":
            options["max_tokens"] = NEVER_TOKENS
        if asked.kind.startswith("two"):
            options["n"] = 2
        if asked.kind == "completion":
            stream = await client.completions.create(prompt=given, stream=True, **options)
            return await self._read(asked, stream, most)
        options["messages"] = [{"role": "user", "content": given}]
        if asked.streams:
            stream = await client.chat.completions.create(stream=True, **options)
            return await self._read(asked, stream, most)
        whole = await client.chat.completions.create(**options)
        assert whole.usage is not None
        asked.usage = whole.usage.prompt_tokens, whole.usage.completion_tokens
        asked.tokens = whole.usage.completion_tokens
        return "answered"

    async def _read(self, asked: Asked, stream: Any, most: int) -> str:
        leaves_after = self._random.randint(1, most // 2) if asked.kind == "leaves" else None
        async with stream:
            async for chunk in stream:
                asked.tokens += sum(map(_has_text, chunk.choices))
                self.pulse.set()
                if leaves_after is not None and asked.tokens >= leaves_after:
                    return "left"
        return "done" if asked.wire.done else "silent"

    def _words(self, asked: Asked) -> str:
        """A prompt: one of a few beginnings that many share, and an end of its own."""
        shared = f"You answer team {self._random.randrange(4)} in few words. " * 2
        return f"{shared} Question {asked.number}: " + "why " * self._random.randint(1, 12)


def _client(url: str, key: str) -> openai.AsyncOpenAI:
    http = openai.DefaultAsyncHttpxClient(transport=Tap())
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=http)


def _has_text(choice: Any) -> bool:
    text = choice.text if hasattr(choice, "text") else choice.delta.content
    return bool(text)
