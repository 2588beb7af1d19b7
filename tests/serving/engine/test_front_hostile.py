"""Clients that leave, stall, or send what they should not. The sockets are the subject here."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.serving.engine.byte_model import write_byte_model
from tests.serving.engine.fronts import FrontProcess, ask, front_process, stream

PATIENCE = {"header_s": 0.5, "body_s": 0.5, "stall_s": 0.5, "idle_s": 1.5}
BODY_BYTES = 100_000
LONG = {"model": "stub", "prompt": "say:loop slow", "max_tokens": 90_000}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_model(tmp_path_factory.mktemp("bytes"))


@pytest.fixture(scope="module")
def front(model: Path) -> Iterator[FrontProcess]:
    limits = {"body_bytes": BODY_BYTES, "requests": 16}
    with front_process(model, limits=limits, patience=PATIENCE) as process:
        process.until("ready")
        yield process
        process.terminate()
        assert process.process.wait(10) == 0
        assert "/ridgeline/" not in process.stderr(), "no client may make our code raise"


def running(front: FrontProcess) -> int:
    lines = ask(f"{front.url}/metrics").body.decode().splitlines()
    (line,) = [one for one in lines if one.startswith("vllm:num_requests_running{")]
    return int(float(line.split()[-1]))


def eventually(claim: Callable[[], bool], within_s: float = 10.0) -> None:
    end_s = time.monotonic() + within_s
    while not claim():
        assert time.monotonic() < end_s, "it did not come true in time"


def http(body: bytes, *, path: str = "/v1/completions", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode() + body


async def connect(front: FrontProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(front.url.rpartition(":")[2]))


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("leaves", ["closes", "half-closes", "resets"])
async def test_a_client_that_leaves_frees_the_engine_at_once(
    front: FrontProcess, streamed: bool, leaves: str
) -> None:
    reader, writer = await connect(front)
    writer.write(http(json.dumps(LONG | {"stream": streamed}).encode()))
    if streamed:
        await reader.readuntil(b"data: ")
    await asyncio.to_thread(eventually, lambda: running(front) == 1)
    if leaves == "half-closes":
        writer.write_eof()
    elif leaves == "closes":
        writer.close()
    else:
        writer.transport.abort()
    await asyncio.to_thread(eventually, lambda: running(front) == 0)
    writer.close()


def test_leaving_before_the_first_token_frees_the_engine_too(front: FrontProcess) -> None:
    async def leave_at_once() -> None:
        _reader, writer = await connect(front)
        writer.write(http(json.dumps(LONG | {"n": 8}).encode()))
        await writer.drain()
        writer.close()

    asyncio.run(leave_at_once())
    assert ask(f"{front.url}/v1/completions", {"model": "stub", "prompt": "a"}).status == 200
    eventually(lambda: running(front) == 0)


async def test_a_client_that_does_not_read_is_dropped(front: FrontProcess) -> None:
    reader, writer = await connect(front)
    body = {"model": "stub", "prompt": "say:loop", "max_tokens": 90_000, "stream": True, "n": 16}
    writer.write(http(json.dumps(body).encode()))
    await reader.readuntil(b"data: ")
    assert await asyncio.to_thread(lambda: running(front)) > 0
    writer.transport.pause_reading()
    await asyncio.to_thread(eventually, lambda: running(front) == 0, 30.0)
    writer.close()


@pytest.mark.parametrize(
    "said",
    [b"", b"POST /v1/comp", b"POST / HTTP/1.1\r\nHost: x\r\nX-A: ", http(b"{", length=50)],
    ids=["nothing", "half a line", "half a header", "half a body"],
)
async def test_a_client_that_stops_speaking_is_dropped(front: FrontProcess, said: bytes) -> None:
    reader, writer = await connect(front)
    writer.write(said)
    answer = await asyncio.wait_for(reader.read(), 15)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408")
    writer.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe\x00", 400),
        (b'{"model": "stub", "prompt": "\xc3\x28"}', 400),
        (b'{"model": "stub", "prompt": "a", "temperature": NaN}', 400),
        (b'{"model": "stub", "prompt": "a", "temperature": 1e999}', 400),
        (b'{"model": "stub", "prompt": "a", "max_tokens": -1}', 400),
        (b'{"model": "stub", "prompt": "a", "max_tokens": 99999999999999999999}', 400),
        (b'{"model": "stub", "prompt": ""}', 400),
        (b'{"model": "stub", "prompt": []}', 400),
        (b'{"model": "stub", "prompt": [[]]}', 400),
        (b'{"model": "stub", "prompt": [1, "a"]}', 400),
        (b'{"model": "stub", "prompt": [259]}', 400),
        (b'{"model": "stub", "prompt": [-1]}', 400),
        (json.dumps({"model": "stub", "prompt": ["a"] * 513}).encode(), 400),
        (json.dumps({"model": "stub", "prompt": ["a"] * 128, "n": 5}).encode(), 400),
        (json.dumps({"model": "stub", "prompt": "a", "stop": ["x"] * 10_000}).encode(), 400),
        (b'{"model": "stub", "prompt": ' + b"[" * 90_000, 400),
        (b'{"model": "stub", "prompt": "a", "logprobs": 1, "echo": true}', 400),
        (b'{"model": "stub", "prompt": "a", "best_of": 3}', 400),
        (b'{"model": "stub", "prompt": "a", "suffix": "b"}', 400),
        (b'{"model": "' + b"x" * 50_000 + b'", "prompt": "a"}', 404),
        (b"x" * (BODY_BYTES + 1), 413),
    ],
    ids=range(23),
)
def test_hostile_bodies_get_a_clear_4xx(front: FrontProcess, body: bytes, status: int) -> None:
    reply = ask(f"{front.url}/v1/completions", body)
    assert reply.status == status
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert len(error["message"]) > 10


async def test_a_body_without_end_is_cut_at_the_limit(front: FrontProcess) -> None:
    reader, writer = await connect(front)
    writer.write(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(BODY_BYTES // 10_000 + 1):
        writer.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
    assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 413")
    writer.close()


@pytest.mark.parametrize(
    "said",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n"],
    ids=["TLS", "no path", "no such HTTP"],
)
async def test_what_is_no_http_gets_400(front: FrontProcess, said: bytes) -> None:
    reader, writer = await connect(front)
    writer.write(said)
    answer = await asyncio.wait_for(reader.read(), 10)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    writer.close()


def test_more_requests_than_the_limit_are_asked_to_come_again(front: FrontProcess) -> None:
    streams = [stream(front, "say:loop slow", max_tokens=90_000) for _ in range(16)]
    events = [one.__enter__() for one in streams]
    try:
        for one in events:
            next(one)
        late = ask(f"{front.url}/v1/completions", {"model": "stub", "prompt": "a"})
        assert (late.status, late.headers["Retry-After"]) == (503, "1")
        assert late.json()["error"]["code"] == "overloaded"
    finally:
        for one in streams:
            one.__exit__(None, None, None)
    eventually(lambda: running(front) == 0)


def test_a_stream_goes_on_beside_hostile_clients(front: FrontProcess) -> None:
    """Every token of an honest stream arrives, in order, while others misbehave."""

    async def misbehave() -> None:
        said: list[Any] = [b"POST /v1/comp", http(b"{", length=90_000), http(b"\xff" * 90_000)]
        writers = [(await connect(front))[1] for _ in range(30)]
        for at, writer in enumerate(writers):
            writer.write(said[at % 3])
            await writer.drain()
        for writer in writers:
            writer.close()

    with stream(front, "say:abc slow", max_tokens=400, ignore_eos=True) as events:
        with closing(asyncio.new_event_loop()) as loop:
            loop.run_until_complete(misbehave())
        *chunks, last, done = events
    text = "".join(json.loads(chunk)["choices"][0]["text"] for chunk in chunks)
    assert text == ("abc slow" * 50)[: len(text)]
    assert (len(text), done) == (400, "[DONE]")
    assert json.loads(last)["choices"][0]["finish_reason"] == "length"
