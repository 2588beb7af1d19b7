"""The console: what it serves, and what a real browser makes of it."""

import asyncio
import json
import re
import shutil
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from ridgeline.serving.gateway.app import Gateway
from ridgeline.serving.gateway.config import GatewayConfig, ReplicaAddress
from ridgeline.web.console import mount_console

FILES = {
    name: (resources.files("ridgeline.web") / name).read_text(encoding="utf-8")
    for name in ("console.html", "console.css", "console.js", "console.svg")
}
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
EVIL = '<img src=x onerror="document.title=1">'


@asynccontextmanager
async def console(api_key: str | None = None):
    gateway = Gateway(GatewayConfig(port=0, api_key=api_key, probe_starting_s=0.01))
    mount_console(gateway.app, gateway.status)
    try:
        yield await gateway.start(), gateway
    finally:
        await gateway.close()


@asynccontextmanager
async def a_replica(model: str):
    """Serves `model`, says "Paris." in three tokens, and fails where it is asked to."""

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": model, "object": "model"}]})

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text="vllm:kv_cache_usage_perc 0.42\nvllm:num_requests_waiting 0\n")

    async def chat(request: web.Request) -> web.StreamResponse:
        if (await request.json()).get("fail"):
            return web.json_response({"error": {"message": f"no {EVIL}"}}, status=500)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for word in ("Pa", "ris", "."):
            chunk = {"choices": [{"delta": {"content": word}}]}
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
            await asyncio.sleep(0.01)
        usage = '{"choices":[],"usage":{"prompt_tokens":77,"completion_tokens":3}}'
        await response.write(f"data: {usage}\n\ndata: [DONE]\n\n".encode())
        return response

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_get("/metrics", metrics)
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def ready(gateway: Gateway) -> None:
    async with asyncio.timeout(5):
        while gateway.status()["replicas"][0]["state"] != "ready":  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def shown_whole(gateway: Gateway, requests: int) -> None:
    """Rates are of whole seconds: wait until the second with the last request is over."""
    async with asyncio.timeout(30):
        while sum(gateway.status()["rates"]["series"]["requests"]) < requests:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_the_page_allows_nothing_from_elsewhere_and_no_frames() -> None:
    async with console() as (url, _), ClientSession() as client:
        for path in ("/", "/console.css", "/console.js", "/console.svg"):
            async with client.get(url + path) as answer:
                assert answer.status == 200
                policy = answer.headers["Content-Security-Policy"]
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy


async def test_with_a_key_the_page_opens_and_its_numbers_do_not() -> None:
    async with console(api_key="s3cret") as (url, _), ClientSession() as client:
        async with client.get(f"{url}/") as answer:
            assert answer.status == 200
        async with client.get(f"{url}/console.json") as answer:
            assert answer.status == 401
        bearer = {"Authorization": "Bearer s3cret"}
        async with client.get(f"{url}/console.json", headers=bearer) as answer:
            assert answer.status == 200
            assert answer.headers["Cache-Control"] == "no-store"
            assert set(await answer.json()) >= {"models", "replicas", "rates", "latency", "recent"}


def test_nothing_is_loaded_from_elsewhere() -> None:
    for name, text in FILES.items():
        elsewhere = re.findall(r"""https?://[^"'\s)>]+""", text.replace("www.w3.org/2000/svg", ""))
        assert [address for address in elsewhere if address != "http://"] == [], name


def test_text_from_outside_is_never_set_as_html() -> None:
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\("
    assert not re.search(unsafe, FILES["console.js"])
    assert not re.search(r"\son[a-z]+=|\sstyle=|<script>", FILES["console.html"])


def test_every_place_that_the_script_fills_is_on_the_page() -> None:
    there = set(re.findall(r'\bid="([^"]+)"', FILES["console.html"]))
    wanted = set(re.findall(r'\$\("([^"]+)"\)', FILES["console.js"]))
    assert wanted <= there
    assert len(wanted) > 20  # the pattern still finds them


async def browse(url: str, folder: Path) -> tuple[str, list[str]]:
    """The page's DOM after four seconds of its time, and what it wrote to its console."""
    process = await asyncio.create_subprocess_exec(
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
        *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
        *("--disable-sync", f"--user-data-dir={folder}", "--virtual-time-budget=4000"),
        *("--enable-logging=stderr", "--log-level=0", "--dump-dom", url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, err = await process.communicate()
    lines = err.decode(errors="replace").splitlines()
    return out.decode(), [line for line in lines if "CONSOLE" in line]


def text_of(dom: str, place: str) -> str:
    """The text of the element with this id."""
    found = re.search(rf'id="{place}"[^>]*>([^<]*)<', dom)
    assert found, f"no {place} on the page"
    return found[1]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
async def test_in_a_browser_the_page_shows_models_replicas_and_numbers(tmp_path) -> None:
    async with a_replica("smollm2") as replica, console() as (url, gateway):
        gateway.add_replica(ReplicaAddress("smollm2-0", replica))
        await ready(gateway)
        async with ClientSession() as client:
            for fail in (False, False, True):
                body = {"model": "smollm2", "stream": True, "messages": [], "fail": fail}
                async with client.post(f"{url}/v1/chat/completions", json=body) as answer:
                    await answer.read()
        await shown_whole(gateway, requests=3)
        dom, said = await browse(url, tmp_path)
    assert said == []
    assert text_of(dom, "overall") == "serving"
    assert text_of(dom, "base") == f"{url}/v1"
    assert text_of(dom, "errors-rate") == "1"
    assert text_of(dom, "tokens-more") == "6 since the start"
    assert re.search(r"\d", text_of(dom, "ttft"))
    assert "<b>smollm2</b>" in dom
    assert ">smollm2-0</td>" in dom
    assert "42 %" in dom
    assert dom.count('<td class="n wide">77</td>') == 2
    assert 'aria-label="Output tokens per second over two minutes' in dom


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
async def test_in_a_browser_names_from_outside_stay_text(tmp_path) -> None:
    async with a_replica(EVIL) as replica, console() as (url, gateway):
        gateway.add_replica(ReplicaAddress(EVIL, replica))
        await ready(gateway)
        async with ClientSession() as client:
            body = {"model": EVIL, "stream": True, "messages": [], "fail": True}
            async with client.post(f"{url}/v1/chat/completions", json=body) as answer:
                assert answer.status == 500
        dom, said = await browse(url, tmp_path)
    assert said == []
    assert "<title>Ridgeline</title>" in dom
    assert "<img src=x" not in dom.replace('"', "")
    assert dom.count("&lt;img src=x onerror=") >= 4  # model, replica, request, error


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
async def test_in_a_browser_a_locked_gateway_asks_for_its_key(tmp_path) -> None:
    async with console(api_key="s3cret") as (url, _):
        dom, _said = await browse(url, tmp_path)
    assert text_of(dom, "overall") == "locked"
    assert re.search(r'<form id="door" class="card">', dom)
    assert re.search(r'<main id="main" hidden="">', dom)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
async def test_in_a_browser_what_a_page_complains_about_is_seen(tmp_path) -> None:
    """Else the tests above could not fail by a complaint."""
    page = tmp_path / "page.html"
    page.write_text("<script>console.error('seen')</script>")
    _dom, said = await browse(page.as_uri(), tmp_path / "profile")
    assert any("seen" in line for line in said)
