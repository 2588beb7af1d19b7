"""A platform with a spare: it takes the place of a replica that dies, and outlives nobody."""

import asyncio
import re
import signal
import subprocess
import sys

import aiohttp
import psutil
import pytest

pytestmark = pytest.mark.slow

URL = re.compile(r"http://127\.0\.0\.1:\d+")
SPEC = """
spares: 1
models:
  - name: m
    model: smollm2-135m-instruct
    engine: {threads: 1, max_seqs: 4, max_model_len: 256, kv_cache: 20MB}
gateway: {listen: "127.0.0.1:0"}
"""


def processes(parent: psutil.Process, word: str) -> list[psutil.Process]:
    """Those of its children that were started with this word."""
    return [one for one in parent.children() if word in one.cmdline()]


async def spares(session: aiohttp.ClientSession, url: str, count: int) -> None:
    """Wait until so many wait."""
    async with asyncio.timeout(90):
        while True:
            async with session.get(f"{url}/console.json") as answer:
                if (await answer.json())["control"].get("spares") == count:
                    return
            await asyncio.sleep(0.02)


async def until(claim):
    """Wait until it is so."""
    async with asyncio.timeout(90):
        while not (found := claim()):  # noqa: ASYNC110 - processes, not an event
            await asyncio.sleep(0.05)
    return found


async def test_a_spare_becomes_a_replica_that_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("RIDGELINE_STATE", str(tmp_path / "state"))
    spec, log = tmp_path / "p.yaml", tmp_path / "log"
    spec.write_text(SPEC)
    argv = [sys.executable, "-m", "ridgeline", "up", str(spec), "--port", "0"]
    with log.open("wb") as out:
        up = await asyncio.create_subprocess_exec(
            *argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL
        )
    parent = psutil.Process(up.pid)
    try:
        (spare,) = await until(lambda: processes(parent, "spare"))
        (serving,) = processes(parent, "serve")
        url = (await until(lambda: URL.findall(log.read_text())))[0]
        async with aiohttp.ClientSession() as session:
            await spares(session, url, 1)
            serving.kill()
            await spares(session, url, 0)
            await spares(session, url, 1)  # once the first has become a replica that is ready
            body = {"model": "m", "prompt": "one two three", "max_tokens": 4, "temperature": 0}
            async with session.post(f"{url}/v1/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()
        assert processes(parent, "serve") == []
        assert len(processes(parent, "spare")) == 2
        assert spare.is_running()
        everyone = parent.children(recursive=True)
        up.send_signal(signal.SIGKILL)
        await up.wait()
        _, alive = await asyncio.to_thread(psutil.wait_procs, everyone, timeout=10)
        assert alive == []
    finally:
        if up.returncode is None:
            up.kill()
