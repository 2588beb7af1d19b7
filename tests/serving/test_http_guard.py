"""The guard in front of aiohttp, on loopback, since the socket is the subject."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientConnectionError, ClientSession, web

from ridgeline.serving.http_guard import GuardedServer, Patience, error_response, read_body
from ridgeline.serving.openai import ApiError

SHORT = Patience(header_s=0.15, body_s=0.15, stall_s=0.15, idle_s=0.4)


@dataclass
class World:
    """What the handlers saw."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)


def an_app(world: World, patience: Patience) -> web.Application:
    async def echo(request: web.Request) -> web.Response:
        try:
            body = await read_body(request, 1000, patience.body_s)
        except ApiError as error:
            return error_response(error)
        return web.Response(body=body)

    async def hold(request: web.Request) -> web.Response:
        world.started.set()
        try:
            await world.go_on.wait()
        except asyncio.CancelledError:
            world.cancelled.set()
            raise
        return web.Response(text="held")

    async def pour(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
        except (asyncio.CancelledError, ConnectionError):
            world.cancelled.set()
            raise

    async def late(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        assert request.transport is not None
        request.transport.abort()  # as when the client's reset is read just now
        world.started.set()
        await response.write(b"too late")
        return response

    app = web.Application()
    app.router.add_get("/late", late)
    app.router.add_post("/echo", echo)
    app.router.add_get("/hold", hold)
    app.router.add_get("/pour", pour)
    return app


@asynccontextmanager
async def served(patience: Patience = SHORT) -> AsyncIterator[tuple[World, GuardedServer, int]]:
    world = World()
    server = GuardedServer(an_app(world, patience), patience)
    port = await server.start("127.0.0.1", 0)
    try:
        yield world, server, port
    finally:
        await server.stop(grace_s=0)


async def say(port: int, *pieces: bytes, every_s: float = 0.0) -> bytes:
    """Everything the server answers until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            if writer.is_closing():
                break
            writer.write(piece)
            await asyncio.sleep(every_s)
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_a_header_that_trickles_in_is_cut_with_408() -> None:
    async with served() as (_, server, port):
        request = b"POST /echo HTTP/1.1\r\nHost: x\r\n" + b"X-A: y\r\n" * 30
        pieces = [request[at : at + 4] for at in range(0, len(request), 4)]
        answer = await say(port, *pieces, every_s=0.03)
        assert answer.startswith(b"HTTP/1.1 408") or answer == b""
        assert server.connections == 0


async def test_a_half_header_gets_408_at_its_deadline_not_at_the_idle_one() -> None:
    async with served(Patience(header_s=0.1, idle_s=30)) as (_, _server, port):
        answer = await say(port, b"POST /echo HTTP/1.1\r\nHost:")
        assert answer.startswith(b"HTTP/1.1 408")


async def test_a_second_half_header_on_a_kept_connection_is_cut_too() -> None:
    async with served(Patience(header_s=0.1, idle_s=30)) as (_, _server, port):
        whole = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
        answer = await say(port, whole, b"POST /echo HTT", every_s=0.05)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1 408" in answer


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with served() as (_, _server, port):
        assert await say(port) == b""


async def test_a_body_that_stops_gets_408_in_openai_shape() -> None:
    async with served() as (_, _server, port):
        answer = await say(port, b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhal")
        assert answer.startswith(b"HTTP/1.1 408")
        assert json.loads(answer.split(b"\r\n\r\n")[1])["error"]["type"] == "invalid_request_error"


async def test_a_body_that_is_too_large_gets_413_whether_announced_or_not() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    async with served(Patience()) as (_, _server, port), ClientSession() as client:
        url = f"http://127.0.0.1:{port}/echo"
        for body in (b"x" * 1001, chunks()):
            async with client.post(url, data=body) as answer:
                assert answer.status == 413
                assert (await answer.json())["error"]["code"] == "request_too_large"


async def test_a_compressed_body_counts_at_its_full_size() -> None:
    async with served(Patience()) as (_, _server, port), ClientSession() as client:
        url = f"http://127.0.0.1:{port}/echo"
        deflated = {"Content-Encoding": "deflate"}
        async with client.post(url, data=zlib.compress(b"y" * 900), headers=deflated) as answer:
            assert await answer.read() == b"y" * 900
        async with client.post(url, data=zlib.compress(b"y" * 10**6), headers=deflated) as answer:
            assert answer.status == 413


async def test_a_body_in_a_broken_encoding_gets_400() -> None:
    async with served(Patience()) as (_, _server, port), ClientSession() as client:
        url = f"http://127.0.0.1:{port}/echo"
        gzipped = {"Content-Encoding": "gzip"}
        async with client.post(url, data=b"this is not gzip", headers=gzipped) as answer:
            assert answer.status == 400


async def test_a_client_that_stops_reading_is_cut() -> None:
    async with served() as (world, server, port):
        _reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET /pour HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(world.cancelled.wait(), 5)
        assert server.connections == 0
        writer.close()


@pytest.mark.parametrize("half", [False, True], ids=["closed", "half-closed"])
async def test_a_handler_is_cancelled_when_its_client_leaves(half: bool) -> None:
    async with served(Patience()) as (world, _server, port):
        _reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(world.started.wait(), 5)
        if half:
            writer.write_eof()
        else:
            writer.close()
        await asyncio.wait_for(world.cancelled.wait(), 5)
        writer.close()


async def test_what_is_no_http_gets_400_and_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Patience()) as (_, server, port):
        for junk in (b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"a\x00b\r\n\r\n"):
            assert (await say(port, junk)).startswith(b"HTTP/1.0 400")
        assert server.connections == 0
    assert caplog.records == []


async def test_a_write_to_a_client_that_has_just_left_fills_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(Patience()) as (world, server, port):
        await say(port, b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n")
        assert world.started.is_set()
        assert server.handling == 0
    assert caplog.records == []


async def test_stopping_lets_what_runs_end_and_refuses_what_is_new() -> None:
    async with served(Patience()) as (world, server, port), ClientSession() as client:
        url = f"http://127.0.0.1:{port}"
        held = asyncio.create_task(client.get(f"{url}/hold"))
        await asyncio.wait_for(world.started.wait(), 5)
        stopping = asyncio.create_task(server.stop(grace_s=5))
        await asyncio.sleep(0)
        with pytest.raises(ClientConnectionError):
            await client.post(f"{url}/echo", data=b"late")
        world.go_on.set()
        assert await (await held).text() == "held"
        await stopping
        assert server.handling == 0


async def test_stopping_cuts_what_outlasts_the_grace() -> None:
    async with served(Patience()) as (world, server, port), ClientSession() as client:
        held = asyncio.create_task(client.get(f"http://127.0.0.1:{port}/hold"))
        await asyncio.wait_for(world.started.wait(), 5)
        await server.stop(grace_s=0.05)
        assert world.cancelled.is_set()
        with pytest.raises(ClientConnectionError):
            await held
