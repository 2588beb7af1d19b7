"""What tests of the console share: a gateway with the page on it, a replica, and real browsers.

`browse` gives the page's DOM after some of its own time; a `Page` is one that can be driven: of a
phone's size, by keys.
"""

import asyncio
import base64
import json
import re
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, web

from ridgeline.serving.gateway.app import Gateway
from ridgeline.serving.gateway.config import GatewayConfig
from ridgeline.web.console import mount_console

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
EVIL = '<img src=x onerror="document.title=1">'
_QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@asynccontextmanager
async def console(api_key: str | None = None, **config):
    gateway = Gateway(GatewayConfig(port=0, api_key=api_key, probe_starting_s=0.01, **config))

    async def status():
        return gateway.status()

    mount_console(gateway.app, status, gateway.store)
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


async def browse(url: str, folder: Path) -> tuple[str, list[str]]:
    """The page's DOM after four seconds of its time, and what it wrote to its console."""
    process = await asyncio.create_subprocess_exec(
        *(CHROMIUM, *_QUIET, f"--user-data-dir={folder}", "--virtual-time-budget=4000"),
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


class Page:
    """A page in a browser, by the DevTools protocol. `said` is what it complained about."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.said: list[str] = []
        self._socket = socket
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[dict]] = {}

    async def hear(self) -> None:
        """Until the browser is gone."""
        async for message in self._socket:
            if message.type is not WSMsgType.TEXT:
                continue
            told = json.loads(message.data)
            if told.get("id") in self._waiting:
                self._waiting.pop(told["id"]).set_result(told)
            elif told.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.said.append(json.dumps(told["params"]))

    async def ask(self, method: str, **params: object) -> dict:
        self._asked += 1
        answer = self._waiting[self._asked] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._asked, "method": method, "params": params})
        async with asyncio.timeout(30):
            told = await answer
        assert "error" not in told, (method, told)
        return told["result"]

    async def open(self, url: str, width: int, height: int, scheme: str = "light") -> None:
        """Leave what is shown for this address, in a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        await self.ask("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.ask("Emulation.setEmulatedMedia", features=features)
        await self.ask("Page.navigate", url="about:blank")
        await self.ask("Page.navigate", url=url)

    async def value(self, expression: str) -> object:
        """Of a JavaScript expression; of a promise what it comes to."""
        told = await self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait until a JavaScript expression holds."""
        async with asyncio.timeout(30):
            # An expression that fails does not hold yet: the page is not there.
            held = f"(() => {{ try {{ return !!({condition}) }} catch {{ return false }} }})()"
            while not await self.value(held):
                await self.value("new Promise(requestAnimationFrame)")

    async def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            codes = {"ArrowLeft": 37, "ArrowRight": 39, "Tab": 9}
            told = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
            await self.ask("Input.dispatchKeyEvent", type=kind, **told)

    async def picture(self) -> bytes:
        """What is seen, as PNG."""
        shot = await self.ask("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])


@asynccontextmanager
async def a_page(folder: Path):
    """A `Page` of a browser of its own, whose profile is in `folder`."""
    process = await asyncio.create_subprocess_exec(
        *(CHROMIUM, *_QUIET, f"--user-data-dir={folder}", "--remote-debugging-port=0"),
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    talk = None
    try:
        async with asyncio.timeout(30):
            while not (found := re.search(rb"ws://[^/]+:(\d+)/", await process.stderr.readline())):
                assert not process.stderr.at_eof(), "the browser did not start"
        talk = asyncio.create_task(process.stderr.read())
        async with ClientSession() as client:
            async with client.get(f"http://127.0.0.1:{int(found[1])}/json") as answer:
                there = next(one for one in await answer.json() if one["type"] == "page")
            async with client.ws_connect(there["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                hears = asyncio.create_task(page.hear())
                for domain in ("Page", "Runtime", "Log"):
                    await page.ask(f"{domain}.enable")
                yield page
                hears.cancel()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        if talk is not None:
            await talk
