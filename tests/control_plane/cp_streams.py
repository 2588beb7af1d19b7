"""Streams of a client that notices everything: how each ended, and when its first token came."""

import time
from dataclasses import dataclass

import aiohttp

_PATIENCE = aiohttp.ClientTimeout(total=120)


@dataclass(slots=True)
class Stream:
    """One stream. `end` is empty while it runs, then one of

    done         [DONE] came
    error event  the answer said that it could not go on
    refused 503  that status instead of an answer
    broken       the connection broke
    silent       the answer just ended, which must never be
    """

    began_s: float = 0.0
    first_s: float | None = None
    ended_s: float | None = None
    chunks: int = 0
    replica: str = ""
    end: str = ""

    @property
    def runs(self) -> bool:
        return bool(self.chunks) and not self.end


async def play(
    session: aiohttp.ClientSession, url: str, stream: Stream, tokens: int, *, n: int = 1
) -> Stream:
    """Ask for so many tokens, and read to the end, whatever it is."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": f"{id(stream)} go on"}],
        "max_tokens": tokens,
        "stream": True,
        "n": n,
    }
    stream.began_s = time.monotonic()
    try:
        stream.end = await _read(session, f"{url}/v1/chat/completions", body, stream)
    except (aiohttp.ClientError, ConnectionError):
        stream.end = "broken"
    finally:
        stream.ended_s = time.monotonic()
    return stream


async def _read(
    session: aiohttp.ClientSession, url: str, body: dict[str, object], stream: Stream
) -> str:
    async with session.post(url, json=body, timeout=_PATIENCE) as answer:
        if answer.status != 200:
            return f"refused {answer.status}"
        stream.replica = answer.headers.get("X-Ridgeline-Replica", "")
        async for line in answer.content:
            if line.startswith(b'data: {"error"'):
                return "error event"
            if line.startswith(b"data: [DONE]"):
                return "done"
            if line.startswith(b"data: "):
                stream.first_s = stream.first_s or time.monotonic()
                stream.chunks += 1
    return "silent"
