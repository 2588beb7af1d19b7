"""No spelling of a path and no method gets past the key, and nobody sees what is not theirs."""

import asyncio

import pytest

CLOSED = (
    "/v1/models",
    "/v1/models/m",
    "/metrics",
    "/v1/usage",
    "/admin/tenants",
)
SPELLINGS = (
    "{}",
    "{}/",
    "/{}",
    "{}?x=1",
    "/admin/..{}",
    "/health/..{}",
    "/admin/%2e%2e{}",
    "/health%2f..{}",
    "/%61dmin/..{}",
)


async def raw(port: int, method: str, target: str) -> tuple[int, bytes]:
    """The answer to a target that no client library has tidied up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asked = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    writer.write(asked.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(answer.split(b" ", 2)[1]), answer


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "PUT", "get"])
async def test_without_a_key_no_spelling_opens_anything(tools, method) -> None:
    async with tools.gateway(tools.replica(), api_key="k", admin_key="root") as gateway:
        port = int(gateway.url.rpartition(":")[2])
        for path in CLOSED:
            for spelling in SPELLINGS:
                target = spelling.format(path)
                status, answer = await raw(port, method, target)
                assert status in (400, 401, 404, 405), (method, target, answer)


async def test_an_absolute_target_is_no_way_to_another_host(tools) -> None:
    replica = tools.replica()
    async with tools.gateway(replica, api_key="k") as gateway:
        port = int(gateway.url.rpartition(":")[2])
        status, _ = await raw(port, "GET", "http://127.0.0.1:1/v1/models")
        assert status in (400, 401, 404)


async def test_health_shows_nothing_of_replicas(tools) -> None:
    async with tools.gateway(tools.replica(), api_key="k") as gateway:
        port = int(gateway.url.rpartition(":")[2])
        status, answer = await raw(port, "GET", "/health")
        assert status == 200
        assert b"r0" not in answer
        assert b"127.0.0.1" not in answer
