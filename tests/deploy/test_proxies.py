"""Tokens pass the proxies of deploy/ one by one, and they wait for as long as the gateway does.

Where nginx or Caddy is installed it really runs, on loopback, with the file as it is but for its
names, paths and ports.
"""

import asyncio
import os
import re
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import trustme
from aiohttp import web

from ridgeline.serving.gateway.config import GatewayConfig, Timeouts

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NGINX, CADDY = shutil.which("nginx"), shutil.which("caddy")
#: Programs that a machine of CI has not, and there nothing may be skipped.
IN_CI = os.environ.get("RIDGELINE_NO_SKIPS") == "1"
EVENTS = 5
WITHIN_S = 20


def seconds(text: str, directive: str) -> float:
    (found,) = re.findall(rf"{directive}\s+(\d+)s", text)
    return float(found)


@pytest.mark.parametrize(
    ("file", "read", "keep"),
    [
        ("nginx.conf", "proxy_read_timeout", "keepalive_timeout"),
        ("Caddyfile", "read_timeout", "keepalive"),
    ],
)
def test_a_proxy_waits_longer_than_the_gateway_and_keeps_connections_shorter(file, read, keep):
    text, gateway = (DEPLOY / file).read_text(), GatewayConfig()
    assert seconds(text, read) > max(Timeouts().first_byte_s, Timeouts().idle_s)
    assert seconds(text, keep) < gateway.patience.idle_s


@pytest.mark.parametrize(
    ("file", "directive"), [("nginx.conf", "client_max_body_size"), ("Caddyfile", "max_size")]
)
def test_what_is_too_large_is_answered_by_the_gateway_itself(file, directive):
    (megabytes,) = re.findall(rf"{directive} (\d+)(?:m|MB)\b", (DEPLOY / file).read_text())
    assert int(megabytes) * 1_000_000 > GatewayConfig().most_body_bytes


def test_nginx_holds_nothing_back_and_asks_nobody_twice():
    text = (DEPLOY / "nginx.conf").read_text()
    for line in (
        "proxy_buffering off;",
        "proxy_request_buffering off;",
        "proxy_next_upstream off;",
        "proxy_http_version 1.1;",
        'proxy_set_header Connection "";',
    ):
        assert line in text


def test_caddy_does_not_go_on_for_clients_that_have_left():
    # It flushes event streams at once anyway; told to, it also goes on for nobody.
    assert "flush_interval" not in (DEPLOY / "Caddyfile").read_text().partition("{")[2]


class Upstream:
    """Sends the next event only once the client has had the one before."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Semaphore(1)
        self.has_left = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for number in range(EVENTS):
                await self.may_go_on.acquire()
                await response.write(f"data: {number}\n\n".encode())
        except (asyncio.CancelledError, ConnectionError):
            self.has_left.set()
            raise
        return response


@asynccontextmanager
async def upstream() -> AsyncIterator[tuple[Upstream, int]]:
    one = Upstream()
    app = web.Application()
    app.router.add_get("/", one.answer)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield one, runner.addresses[0][1]
    finally:
        await runner.cleanup()


def free_port() -> int:
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def nginx(folder: Path, behind: int, port: int) -> list[str]:
    """Its command line, with the file of deploy/ included in a whole configuration."""
    site = (DEPLOY / "nginx.conf").read_text()
    for old, new in (
        ("127.0.0.1:8000", f"127.0.0.1:{behind}"),
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("models.example.com;", "localhost;"),
        ("/etc/ssl/models.example.com.pem", str(folder / "cert.pem")),
        ("/etc/ssl/private/models.example.com.key", str(folder / "key.pem")),
    ):
        assert old in site
        site = site.replace(old, new)
    (folder / "site.conf").write_text(site)
    places = "".join(
        f"{name}_temp_path {folder / name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "whole.conf").write_text(
        f"daemon off;\npid {folder}/pid;\nerror_log {folder}/log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{places}include {folder}/site.conf;\n}}\n"
    )
    return [str(NGINX), "-c", str(folder / "whole.conf"), "-e", str(folder / "log")]


def caddy(folder: Path, behind: int, port: int) -> list[str]:
    """The same of Caddy, with a certificate that is here."""
    text = (DEPLOY / "Caddyfile").read_text()
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{behind}")
    files = f"\ttls {folder / 'cert.pem'} {folder / 'key.pem'}\n\tbind 127.0.0.1\n"
    text = text.replace("models.example.com {\n", f"https://localhost:{port} {{\n{files}")
    (folder / "Caddyfile").write_text(
        f"{{\n\tadmin off\n\tauto_https off\n\tgrace_period 1s\n}}\n{text}"
    )
    return [str(CADDY), "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


async def listening(port: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            writer.close()
            return


PROXIES = [
    pytest.param(make, marks=pytest.mark.skipif(not program, reason=f"needs {name}"), id=name)
    for make, program, name in ((nginx, NGINX, "nginx"), (caddy, CADDY, "caddy"))
    if program or not IN_CI
]


if PROXIES:

    @pytest.mark.parametrize("command", PROXIES)
    async def test_events_pass_one_by_one_and_who_leaves_is_known_to_have_left(command, tmp_path):
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
        certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
        context = ssl.create_default_context()
        authority.configure_trust(context)
        port = free_port()
        async with upstream() as (behind, its_port):
            words = command(tmp_path, its_port, port)
            home = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
            with (tmp_path / "said").open("wb") as said:
                process = await asyncio.create_subprocess_exec(
                    *words, stdout=said, stderr=said, env=home
                )
            try:
                await listening(port)
                async with asyncio.timeout(WITHIN_S), aiohttp.ClientSession() as session:
                    url = f"https://localhost:{port}/"
                    await _reads_all(session, url, context, behind)
                    await _leaves(session, url, context, behind)
            finally:
                process.terminate()
                await process.wait()


async def _reads_all(session, url, context, behind) -> None:
    async with session.get(url, ssl=context) as answer:
        assert answer.status == 200
        for number in range(EVENTS):
            # Without this event the next one is never sent: nobody on the way holds it back.
            assert await answer.content.readuntil(b"\n\n") == f"data: {number}\n\n".encode()
            behind.may_go_on.release()


async def _leaves(session, url, context, behind) -> None:
    async with session.get(url, ssl=context) as answer:
        await answer.content.readuntil(b"\n\n")
        answer.connection.transport.abort()  # `close` would wait for TLS to say goodbye
    await behind.has_left.wait()
