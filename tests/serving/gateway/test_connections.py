"""Connections are kept where that is safe, cut where nobody waits, and never run over."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trustme

from ridgeline.serving.gateway import connections
from ridgeline.serving.gateway.connections import Connection, Pool, address_of
from ridgeline.serving.gateway.http1 import NotHttpError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SOON_S = 5.0
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def replica(
    serve: Serve, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Pool, str]]:
    """A pool, and the root of a server that does what `serve` does with each connection."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0, ssl=tls)
    pool = Pool(keep_s=60.0)
    scheme = "https" if tls else "http"
    try:
        yield pool, f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}"
    finally:
        await pool.close()
        server.close()
        await server.wait_closed()


async def answer_always(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        try:
            await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        writer.write(OK)


def says(data: bytes) -> Serve:
    """A server that answers once with these bytes and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()

    return serve


async def ask(pool: Pool, root: str) -> Connection:
    connection = pool.take(root) or await pool.open(root, SOON_S)
    await connection.ask(address_of(root).request("/x", {}, 0), b"", SOON_S)
    return connection


async def test_a_connection_is_used_again_once_its_answer_was_read() -> None:
    async with replica(answer_always) as (pool, root):
        first = await ask(pool, root)
        assert await first.piece(SOON_S) == b"ok"
        assert await first.piece(SOON_S) == b""
        pool.give_back(root, first)
        assert await ask(pool, root) is first


async def test_an_answer_that_nobody_read_is_cut() -> None:
    async with replica(answer_always) as (pool, root):
        first = await ask(pool, root)
        pool.give_back(root, first)
        assert pool.take(root) is None


async def test_a_connection_that_is_too_old_is_not_used() -> None:
    async with replica(answer_always) as (_, root):
        pool = Pool(keep_s=0.0)
        connection = await ask(pool, root)
        await connection.piece(SOON_S)
        pool.give_back(root, connection)
        assert pool.take(root) is None
        await pool.close()


async def test_a_kept_connection_that_the_replica_closed_is_not_used() -> None:
    async with replica(says(OK)) as (pool, root):
        connection = await ask(pool, root)
        await connection.piece(SOON_S)
        pool.give_back(root, connection)
        async with asyncio.timeout(SOON_S):
            while connection.usable:  # noqa: ASYNC110 (the socket has no event to wait for)
                await asyncio.sleep(0)
        assert pool.take(root) is None


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\nContent-Le"])
async def test_an_answer_that_never_came_is_a_connection_error(data: bytes) -> None:
    async with replica(says(data)) as (pool, root):
        with pytest.raises(ConnectionError):
            await ask(pool, root)


async def test_an_answer_cut_in_its_body_gives_what_came_and_then_the_error() -> None:
    async with replica(says(OK.replace(b": 2", b": 9"))) as (pool, root):
        connection = await ask(pool, root)
        assert await connection.piece(SOON_S) == b"ok"
        with pytest.raises(ConnectionError):
            await connection.piece(SOON_S)


async def test_what_is_no_http_is_refused() -> None:
    async with replica(says(b"220 smtp ready\r\n\r\n")) as (pool, root):
        with pytest.raises(NotHttpError):
            await ask(pool, root)


async def test_silence_is_a_timeout() -> None:
    async with replica(says(b"")) as (pool, root):
        connection = await pool.open(root, SOON_S)
        with pytest.raises(TimeoutError):
            await connection.ask(b"POST / HTTP/1.1\r\n", b"", 0.01)  # its header never ends


async def test_an_answer_is_not_read_faster_than_it_is_passed_on() -> None:
    sent = 0
    stuck = asyncio.Event()

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.set_write_buffer_limits(0)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(1000):
            writer.write(bytes(100_000))
            sent += 100_000
            try:
                await asyncio.wait_for(writer.drain(), 0.2)
            except TimeoutError:
                stuck.set()
                return

    async with replica(pour) as (pool, root):
        connection = await ask(pool, root)
        await asyncio.wait_for(stuck.wait(), SOON_S)
        assert sent < 50_000_000  # what the system's socket buffers hold, and one of ours
        assert connection._held_bytes < 1_000_000
        connection.cut()


async def test_a_large_request_that_is_refused_early_is_not_written_to_its_end() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    release = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(refusal)
        await release.wait()  # reads nothing more, hangs up later

    async with replica(refuse) as (pool, root):
        body = bytes(64_000_000)
        connection = await pool.open(root, SOON_S)
        request = address_of(root).request("/x", {}, len(body))
        incoming = await connection.ask(request, body, SOON_S)
        assert incoming.status == 413
        pool.give_back(root, connection)
        assert pool.take(root) is None
        release.set()


async def test_a_large_request_arrives_whole() -> None:
    body = bytes(range(256)) * 8000

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        got = await reader.readexactly(len(body))
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + (b"y" if got == body else b"n")
        )

    async with replica(count) as (pool, root):
        connection = await pool.open(root, SOON_S)
        await connection.ask(address_of(root).request("/x", {}, len(body)), body, SOON_S)
        assert await connection.piece(SOON_S) == b"y"


async def test_a_closed_pool_cuts_what_runs_and_opens_nothing() -> None:
    async with replica(answer_always) as (pool, root):
        connection = await ask(pool, root)
        await pool.close()
        assert not connection.usable
        with pytest.raises(OSError, match="closes"):
            await pool.open(root, SOON_S)


def test_an_address_may_have_a_prefix_and_a_password() -> None:
    request = address_of("http://me:p%40ss@host:8000/llm").request("/v1/x?a=1", {"A": "b"}, 3)
    assert request == (
        b"POST /llm/v1/x?a=1 HTTP/1.1\r\nHost: host:8000\r\nAccept-Encoding: identity\r\n"
        b"Content-Length: 3\r\nA: b\r\nAuthorization: Basic bWU6cEBzcw==\r\n\r\n"
    )


@pytest.mark.parametrize(("root", "port"), [("http://[::1]", 80), ("https://h", 443)])
def test_a_port_goes_without_saying(root: str, port: int) -> None:
    assert address_of(root).port == port


@pytest.mark.parametrize("value", ["a\r\nX-Injected: 1", "a\nb", "a\0"])
def test_a_field_cannot_smuggle_another_one(value: str) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        address_of("http://h").request("/x", {"A": value}, 0)


# TLS.


@pytest.fixture
def authority(monkeypatch, tmp_path) -> trustme.CA:
    """A certificate authority that this process trusts, as an operator would have it do."""
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    connections._tls.cache_clear()
    yield made
    connections._tls.cache_clear()


def served_as(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


async def test_over_tls_connections_are_kept_too(authority) -> None:
    async with replica(answer_always, served_as(authority, "localhost")) as (pool, root):
        first = await ask(pool, root)
        assert await first.piece(SOON_S) == b"ok"
        pool.give_back(root, first)
        assert await ask(pool, root) is first


async def test_a_long_body_goes_and_comes_whole_over_tls(authority) -> None:
    sent = bytes(range(256)) * 8192  # more than is written or held at once

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(len(sent))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    async with replica(echo, served_as(authority, "localhost")) as (pool, root):
        connection = await pool.open(root, SOON_S)
        request = address_of(root).request("/", {}, len(sent))
        await connection.ask(request, sent, SOON_S)
        came = b""
        while piece := await connection.piece(SOON_S):
            came += piece
        assert came == sent


async def test_a_certificate_of_another_name_or_authority_is_refused(authority) -> None:
    for tls in (served_as(authority, "elsewhere"), served_as(trustme.CA(), "localhost")):
        async with replica(answer_always, tls) as (pool, root):
            with pytest.raises(ssl.SSLCertVerificationError):
                await pool.open(root, SOON_S)
