"""A replica without a model, so fast that what is measured is whoever stands in front of it.

    python bench/mock_upstream.py --port 9000 [--said FILE]

Law of this file: it answers at once, in OpenAI's shapes, and does as little as it can: bodies are
searched, not decoded, answers are made beforehand. A stream's chunks keep a fixed timetable and
each carries the moment it was sent (`@<monotonic ns>`), so that a reader on this machine sees how
long it was on its way. `bench/gateway.py` starts it; `--said` notes what is asked beside requests.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import cast

import uvloop

MODEL = "bench-model"
IN_STEP = b"in step"
PROMPT_TOKENS, OUTPUT_TOKENS = 250, 16
USAGE = {
    "prompt_tokens": PROMPT_TOKENS,
    "completion_tokens": OUTPUT_TOKENS,
    "total_tokens": PROMPT_TOKENS + OUTPUT_TOKENS,
}
CHUNKS, EVERY_S = 64, 0.02  # 50 tokens/s, what users of a good service see
_MADE = {"id": "chatcmpl-bench", "created": 1, "model": MODEL}


def http(body: bytes, kind: str = "application/json", status: str = "200 OK") -> bytes:
    """One whole answer."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _answer() -> bytes:
    said = {"role": "assistant", "content": "word " * OUTPUT_TOKENS}
    choice = {"index": 0, "message": said, "finish_reason": "stop", "logprobs": None}
    whole = {**_MADE, "object": "chat.completion", "choices": [choice], "usage": USAGE}
    return http(json.dumps(whole).encode())


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    chunk = {**_MADE, "object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def chunked(piece: bytes) -> bytes:
    """A piece of a body whose length nobody knows yet."""
    return b"%x\r\n%s\r\n" % (len(piece), piece)


ANSWER = _answer()
FIRST = _event({"role": "assistant", "content": ""})
BEFORE, AFTER = _event({"content": "@MOMENT "}).split(b"MOMENT")
LAST = _event({}, finish="stop")
_USAGE_CHUNK = {**_MADE, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}
USED = b"data: " + json.dumps(_USAGE_CHUNK).encode() + b"\n\n"
DONE = b"data: [DONE]\n\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
NOT_FOUND = http(b"{}", status="404 Not Found")
_MODELS = {
    "object": "list",
    "data": [{"id": MODEL, "object": "model", "created": 1, "owned_by": "bench"}],
}
# What routers ask of a replica before and while they use it; SGLang's and vLLM's names.
_ABOUT = {"model_path": MODEL, "served_model_name": MODEL, "is_generation": True, "dp_size": 1}
PAGES = {
    b"/health": http(b"", "text/plain"),
    b"/health_generate": http(b"", "text/plain"),
    b"/v1/models": http(json.dumps(_MODELS).encode()),
    b"/server_info": http(json.dumps(_ABOUT).encode()),
    b"/get_server_info": http(json.dumps(_ABOUT).encode()),
    b"/model_info": http(json.dumps(_ABOUT).encode()),
    b"/get_model_info": http(json.dumps(_ABOUT).encode()),
    b"/version": http(b'{"version": "0.11.0"}'),
}


class Replica(asyncio.Protocol):
    """One connection: requests come one after the other (nobody pipelines)."""

    streams = 0
    said: Path | None = None

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connected."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        """Nobody reads on: streams end."""
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Bytes of a request; where it is whole, it is answered."""
        self._buffer = buffer = self._buffer + data if self._buffer else data
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        if buffer.startswith(b"PRI "):  # HTTP/2 by prior knowledge: we speak 1.1 only
            self._write(http(b"", status="505 HTTP Version Not Supported"))
            self._close()
            return
        body_end = _body_end(buffer, end)
        if body_end is not None:
            self._buffer = buffer[body_end:]
            self._answer(buffer[: end + 2], buffer[end + 4 : body_end])

    def _answer(self, head: bytes, body: bytes) -> None:
        method, path = head.split(b" ", 2)[:2]
        if method == b"POST" and path.endswith(b"/completions"):
            if b'"stream":true' in body or b'"stream": true' in body:
                self._stream(body)
            else:
                self._write(ANSWER)
            return
        if self.said is not None:
            with self.said.open("ab") as out:
                out.write(method + b" " + path + b"\n")
        self._write(PAGES.get(path.partition(b"?")[0], NOT_FOUND))

    def _stream(self, body: bytes) -> None:
        """Chunks on a timetable: all streams in step, as from one engine, or spread evenly."""
        Replica.streams += 1
        now_s = self._loop.time()
        offset_s = 0.0 if IN_STEP in body else (Replica.streams * 0.618 % 1) * EVERY_S
        first_s = (now_s // EVERY_S + 1) * EVERY_S + offset_s
        self._write(STREAM_HEAD + chunked(FIRST))
        end = LAST + (USED if b"include_usage" in body else b"") + DONE
        self._loop.call_at(first_s, self._chunk, first_s, CHUNKS, end)

    def _chunk(self, at_s: float, left: int, end: bytes) -> None:
        if self._transport is None:
            return
        if not left:
            self._write(chunked(end) + b"0\r\n\r\n")
            return
        self._write(chunked(b"%s%d%s" % (BEFORE, time.monotonic_ns(), AFTER)))
        self._loop.call_at(at_s + EVERY_S, self._chunk, at_s + EVERY_S, left - 1, end)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _body_end(buffer: bytes, head_end: int) -> int | None:
    """Where the request in the buffer ends; None while it is not whole."""
    head = buffer[:head_end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at >= 0:
        end = head_end + 4 + int(head[at + 17 :].split(b"\r\n", 1)[0])
        return end if len(buffer) >= end else None
    if b"\r\ntransfer-encoding: chunked" in head:
        end = buffer.find(b"\r\n0\r\n\r\n", head_end)
        return end + 7 if end >= 0 else None
    return head_end + 4


async def serve(port: int) -> None:
    """Answers until it is killed."""
    server = await asyncio.get_running_loop().create_server(
        Replica, "127.0.0.1", port, backlog=1024
    )
    async with server:
        await server.serve_forever()


def main() -> int:
    """`mock_upstream.py --port N`: serves until it is told to end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--said", type=Path, help="write what is asked beside requests to this")
    options = parser.parse_args()
    Replica.said = options.said
    uvloop.run(serve(options.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
