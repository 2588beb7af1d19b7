"""A spare becomes the replica it is told to be; none is left behind."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager

import pytest

from ridgeline.errors import ModelError
from ridgeline.launch.local import Child
from ridgeline.serving.control import spares as module
from ridgeline.serving.control.replicas import Launch
from ridgeline.serving.control.spares import Spares

WAITS = """
import json, sys
from ridgeline.launch.local import announce
announce({"event": "spare"})
order = json.loads(sys.stdin.readline() or "null")
if order:
    announce({"event": "became", **order})
    sys.stdin.read()
"""
ENDS = "raise SystemExit(3)"


@pytest.fixture
def started(monkeypatch):
    """Every process that was started, in order."""
    children: list[Child] = []
    start = Child.start

    async def note(*args, **kwargs):
        children.append(await start(*args, **kwargs))
        return children[-1]

    monkeypatch.setattr(Child, "start", note)
    return children


@asynccontextmanager
async def spares_of(monkeypatch, tmp_path, *, code: str = WAITS, count: int = 1, env=None):
    monkeypatch.setattr(module, "COMMAND", (sys.executable, "-c", code))
    spares = Spares(count, tmp_path / "spare.log", env or {})
    try:
        yield spares
    finally:
        await spares.close()


def launch_in(tmp_path, verb: str = "serve", **env: str) -> Launch:
    return Launch("m-0", [verb, "model", "--port", "0"], tmp_path / "m-0.log", env)


async def first(child: Child, name: str):
    async with asyncio.timeout(30):
        async for event in child.events():
            if event["event"] == name:
                return event
    raise AssertionError(f"it never said {name}")


async def test_a_spare_is_told_what_to_become_and_where_to_write(tmp_path, monkeypatch, started):
    async with spares_of(monkeypatch, tmp_path) as spares:
        spares.fill()
        await spares.filled()
        assert spares.ready == 1
        child = await spares.start(launch_in(tmp_path))
        assert child is started[0]
        told = await first(child, "became")
        assert told["arguments"] == ["model", "--port", "0"]
        assert told["log"] == str(child.log) == str(tmp_path / "m-0.log")
        assert spares.ready == 0
        await child.kill()


@pytest.mark.parametrize(
    "launch", [{"verb": "fake-replica"}, {"RIDGELINE_KERNELS": "plain"}], ids=["verb", "env"]
)
async def test_what_a_spare_cannot_become_starts_from_nothing(
    tmp_path, monkeypatch, started, launch
):
    async with spares_of(monkeypatch, tmp_path) as spares:
        spares.fill()
        await spares.filled()
        child = await spares.start(launch_in(tmp_path, **launch))
        assert child is not started[0]
        assert spares.ready == 1
        await child.kill()
    assert started[0].returncode is not None


async def test_one_that_died_while_it_waited_is_passed_over(tmp_path, monkeypatch, started):
    async with spares_of(monkeypatch, tmp_path, count=2) as spares:
        spares.fill()
        await spares.filled()
        dead, alive = spares._waiting
        os.kill(dead.pid, signal.SIGKILL)
        await dead.wait()
        child = await spares.start(launch_in(tmp_path))
        assert child is alive
        await child.kill()


async def test_where_spares_do_not_start_replicas_start_from_nothing(
    tmp_path, monkeypatch, started
):
    async with spares_of(monkeypatch, tmp_path, code=ENDS) as spares:
        spares.fill()
        await spares.filled()
        assert spares.ready == 0
        child = await spares.start(launch_in(tmp_path))
        assert len(started) == 2
        await child.kill()


async def test_closing_leaves_none_also_of_those_on_their_way(tmp_path, monkeypatch):
    is_started = asyncio.Event()
    children = []
    start = Child.start

    async def note(*args, **kwargs):
        children.append(await start(*args, **kwargs))
        is_started.set()
        return children[-1]

    monkeypatch.setattr(Child, "start", note)
    async with spares_of(monkeypatch, tmp_path, code="import sys; sys.stdin.read()") as spares:
        spares.fill()
        await is_started.wait()
    assert [child.returncode is None for child in children] == [False]


async def test_a_real_spare_serves_without_importing_again_and_adds_up(tmp_path) -> None:
    pytest.importorskip("torch", reason="the engine needs it")
    from ridgeline.catalog.packaged import DEFAULT_MODEL, find_model
    from ridgeline.serving.bench.cold_start import started_by_a_spare

    try:
        model = find_model(DEFAULT_MODEL)
    except ModelError as error:
        pytest.skip(str(error))
    arguments = ["serve", str(model), "--port", "0", "--threads", "1"]
    launch = Launch("m-0", arguments, tmp_path / "m-0.log", {"RIDGELINE_CACHE": str(tmp_path)})
    start = (await started_by_a_spare(launch)).start
    assert "import" not in start.stages_s
    assert start.sum_s == pytest.approx(start.whole_s, rel=0.10), dict(start.stages_s)


async def test_a_spare_whose_model_cannot_be_served_says_so(tmp_path) -> None:
    pytest.importorskip("torch", reason="the engine needs it")
    from ridgeline.serving.bench.cold_start import started_by_a_spare

    torn = tmp_path / "torn.gguf"
    torn.write_bytes(b"GGUF")
    launch = Launch("m-0", ["serve", str(torn), "--port", "0"], tmp_path / "m-0.log", {})
    with pytest.raises(ModelError, match="torn"):
        await started_by_a_spare(launch)
