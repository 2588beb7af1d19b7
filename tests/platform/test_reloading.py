"""A platform on fake replicas becomes another one while its answers run."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import yaml

from ridgeline.errors import LaunchError, ModelError, SpecError
from ridgeline.launch.door import ask
from ridgeline.launch.running import read
from ridgeline.platform.live import LivePlatform
from ridgeline.serving.gateway.tenants import KeySpec, Tenants
from ridgeline.spec import Platform
from ridgeline.store.database import open_store

#: An answer of four seconds: longer than a reload takes on a busy machine.
TOKENS = 200
ENGINE = {"kind": "fake", "step": "20ms"}


def spec(*models: dict[str, Any], **parts: Any) -> Platform:
    gateway = {"listen": "127.0.0.1:0", **parts.pop("gateway", {})}
    told = {"name": "mine", "models": list(models), "gateway": gateway, **parts}
    return Platform.model_validate(yaml.safe_load(json.dumps(told)))


def fake(name: str = "chat", **parts: Any) -> dict[str, Any]:
    return {"name": name, "engine": {**ENGINE, **parts.pop("engine", {})}, **parts}


class Screen:
    def __init__(self) -> None:
        self.ready_url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def ready(self, url: str) -> None:
        if not self.ready_url.done():
            self.ready_url.set_result(url)

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


class Up:
    def __init__(self, live: LivePlatform, session: aiohttp.ClientSession) -> None:
        self.gateway, self.url, self.session = live.gateway, live.gateway.url, session

    async def reload(self, wanted: Platform) -> list[dict[str, Any]]:
        (running,) = read()
        return await ask(running, "reload", spec=wanted.model_dump(mode="json"))

    async def told(self) -> dict[str, Any]:
        (running,) = read()
        return await ask(running, "spec")

    async def asks(self, model: str, tokens: int = 4, **headers: str) -> tuple[int, Any]:
        body = {"model": model, "prompt": "x", "max_tokens": tokens, "ignore_eos": True}
        async with self.session.post(
            f"{self.url}/v1/completions", json=body, headers=headers
        ) as answer:
            return answer.status, await answer.json()

    async def streams(self, model: str, tokens: int) -> tuple[int, bool]:
        """How many events came, and whether the answer ended as it should."""
        body = {"model": model, "prompt": "x", "max_tokens": tokens, "stream": True,
                "ignore_eos": True}  # fmt: skip
        events = []
        async with self.session.post(f"{self.url}/v1/completions", json=body) as answer:
            assert answer.status == 200
            assert answer.headers["X-Accel-Buffering"] == "no"  # whatever proxy is in front
            async for line in answer.content:
                if line.startswith(b"data: "):
                    events.append(line[6:].strip())
                    self.flowing.set()
        return len(events), events[-1] == b"[DONE]" and b"error" not in events[-2]

    @asynccontextmanager
    async def stream(self, model: str, tokens: int) -> AsyncIterator[asyncio.Task[Any]]:
        self.flowing = asyncio.Event()
        task = asyncio.create_task(self.streams(model, tokens))
        await self.flowing.wait()
        yield task
        await task

    async def control(self) -> dict[str, Any]:
        models = (await self.gateway.look())["control"]["models"]
        return {one["model"]: one for one in models}

    async def until(self, holds: Any) -> Any:
        """What it gives, once that is something; a look at the gateway's health in between."""
        async with asyncio.timeout(30):
            while not (found := await holds()):
                async with self.session.get(f"{self.url}/health") as answer:
                    await answer.read()
        return found


@asynccontextmanager
async def up(platform: Platform, written: Platform | None = None) -> AsyncIterator[Up]:
    screen, stop = Screen(), asyncio.Event()
    live = LivePlatform(platform, screen, written=written)
    running = asyncio.create_task(live.run(stop))
    try:
        done, _ = await asyncio.wait(
            {running, screen.ready_url}, return_when=asyncio.FIRST_COMPLETED
        )
        if running in done:
            await running
        async with aiohttp.ClientSession() as session:
            one = Up(live, session)
            await one.until(lambda: _has_door(one))
            yield one
    finally:
        stop.set()
        await running
    assert read() == []


async def _has_door(one: Up) -> bool:
    try:
        return bool(await one.told())
    except (LaunchError, ValueError):
        return False


async def test_models_come_and_go_and_no_answer_is_cut():
    async with up(spec(fake())) as one:
        async with one.stream("chat", TOKENS) as answer:
            changes = await one.reload(spec(fake("other"), fake("chat", price={"output": "1"})))
            assert {change["how"] for change in changes} == {"starts", "in place"}
            changes = await one.reload(spec(fake("other")))
            assert [change["how"] for change in changes] == ["drains"]
            assert not answer.done()
            assert await answer == (TOKENS + 2, True)
        assert [running.models for running in read()] == [("other",)]
        await one.until(lambda: _answers(one, "other"))
        gone = await one.until(lambda: _status(one, "chat", 404))
        assert gone
        assert (await one.asks("other"))[0] == 200
        assert set(await one.control()) == {"other"}


async def _answers(one: Up, model: str) -> bool:
    return (await one.asks(model))[0] == 200


async def _status(one: Up, model: str, status: int) -> bool:
    return (await one.asks(model))[0] == status


async def test_a_model_that_still_drains_cannot_come_back_yet():
    async with up(spec(fake("keep"), fake())) as one, one.stream("chat", TOKENS) as answer:
        await one.reload(spec(fake("keep")))
        with pytest.raises(SpecError, match="chat still drains"):
            await one.reload(spec(fake("keep"), fake()))
        assert await answer == (TOKENS + 2, True)


async def test_bounds_change_at_the_next_look():
    async with up(spec(fake())) as one:
        await one.reload(spec(fake(replicas={"min": 2, "max": 3})))
        assert (await one.control())["chat"]["least"] == 2
        shown = await one.until(lambda: _has_replicas(one, 2))
        assert shown["most"] == 3
        fewer = fake(replicas={"min": 1, "max": 1})
        await one.reload(spec(fewer))
        await one.until(lambda: _has_replicas(one, 1))


async def _has_replicas(one: Up, wanted: int) -> Any:
    shown = (await one.control())["chat"]
    return shown if sum(part["replicas"] for part in shown["versions"]) == wanted else None


async def test_another_version_is_refused_and_nothing_at_all_has_changed():
    was = spec(fake())
    async with up(was) as one:
        changes = await one.reload(
            spec(fake(engine={"step": "10ms"}, replicas={"min": 2}), fake("new"))
        )
        assert {change["how"] for change in changes} == {
            "needs a rollout", "in place", "starts"
        }  # fmt: skip
        assert (await one.told())["written"] == was.model_dump(mode="json")
        assert set(await one.control()) == {"chat"}
        assert (await one.control())["chat"]["least"] == 1


async def test_weights_that_are_not_here_are_said_before_anything_changes():
    async with up(spec(fake())) as one:
        new = {"name": "new", "model": "/no/such.gguf"}
        with pytest.raises(SpecError, match=r"no/such\.gguf"):
            await one.reload(spec(fake(replicas={"min": 2}), new))
        assert (await one.control())["chat"]["least"] == 1
        assert set(await one.control()) == {"chat"}


async def test_a_key_that_is_not_set_is_said_before_anything_changes(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    new = {
        "name": "new",
        "engine": {"kind": "url", "urls": ["http://127.0.0.1:1"], "api_key_env": "NO_SUCH_KEY"},
    }
    async with up(spec(fake())) as one:
        with pytest.raises(SpecError, match="NO_SUCH_KEY is not set"):
            await one.reload(spec(fake(price={"output": "1"}), new))
        assert set(await one.control()) == {"chat"}


async def test_tenants_change_within_a_second(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    tenant = {"name": "search", "limits": {"requests_per_minute": 1}}
    gateway = {"database": url}
    async with up(spec(fake(), tenants=[tenant], gateway=gateway)) as one:
        store = open_store(url)
        key = Tenants(store).create_key(KeySpec(tenant="search"), actor="test").secret
        store.dispose()
        headers = {"Authorization": f"Bearer {key}"}
        assert (await one.asks("chat", **headers))[0] == 200
        assert (await one.asks("chat", **headers))[0] == 429
        more = {"name": "search", "limits": {"requests_per_minute": 100}}
        (change,) = await one.reload(spec(fake(), tenants=[more], gateway=gateway))
        assert change["where"] == "tenants[search].limits.requests_per_minute"
        assert await one.until(lambda: _asks_as(one, headers, 200))
        other = {"name": "other"}
        await one.reload(spec(fake(), tenants=[other], gateway=gateway))
        assert await one.until(lambda: _asks_as(one, headers, 403))


async def _asks_as(one: Up, headers: dict[str, str], status: int) -> bool:
    return (await one.asks("chat", **headers))[0] == status


async def test_options_of_the_command_line_are_no_difference():
    written = spec(fake(), name="in-the-file", gateway={"listen": "127.0.0.1:8000"})
    runs = written.model_copy(
        update={"name": "mine", "gateway": written.gateway.model_copy(
            update={"listen": "127.0.0.1:0"})}
    )  # fmt: skip
    async with up(runs, written) as one:
        assert await one.reload(written) == []
        moved = spec(fake(), name="in-the-file", gateway={"listen": "127.0.0.1:8001"})
        (change,) = await one.reload(moved)
        assert change["how"] == "needs a restart"


async def test_a_sleeping_model_that_may_not_sleep_any_more_starts():
    sleeps = fake(replicas={"min": 0, "max": 1})
    async with up(spec(sleeps)) as one:
        assert await one.control()
        await one.reload(spec(fake(replicas={"min": 1, "max": 1})))
        await one.until(lambda: _has_replicas(one, 1))


async def test_several_workers_learn_of_it():
    gateway = {"workers": 2}
    async with up(spec(fake(), gateway=gateway)) as one:
        changes = await one.reload(spec(fake(routing={"policy": "least-load"}), gateway=gateway))
        assert [change["how"] for change in changes] == ["in place"]
        assert await one.until(lambda: _routing(one, "least-load"))


async def _routing(one: Up, rule: str) -> bool:
    models = (await one.gateway.look())["models"]
    return all(model["routing"] == rule for model in models)


async def test_servers_that_run_already_come_and_go():
    async with up(spec(fake())) as replicas:
        (replica,) = (await replicas.gateway.look())["replicas"]
        url = replica["address"]

        def by_url(*urls: str) -> dict[str, Any]:
            return {"name": "big", "engine": {"kind": "url", "urls": list(urls)}}

        (change,) = await replicas.reload(spec(fake(), by_url(url)))
        assert change["how"] == "starts"
        await replicas.until(lambda: _answers(replicas, "big"))
        (change,) = await replicas.reload(spec(fake(), by_url(url, "http://127.0.0.1:1")))
        assert change["said"] == "big: http://127.0.0.1:1 joins"
        async with replicas.stream("big", TOKENS) as answer:
            elsewhere = "http://127.0.0.1:1"
            await replicas.reload(spec(fake(), by_url(elsewhere)))
            await replicas.reload(spec(fake(), by_url(elsewhere, url)))  # back before it had left
            await replicas.until(lambda: _answers(replicas, "big"))
            assert await answer == (TOKENS + 2, True)
        (change,) = await replicas.reload(spec(fake()))
        assert change["how"] == "drains"
        assert await replicas.until(lambda: _status(replicas, "big", 404))
        assert (await replicas.asks("chat"))[0] == 200


def test_a_missing_weight_is_a_model_error():
    with pytest.raises(ModelError):
        LivePlatform(spec({"name": "a", "model": "/no/such.gguf"}), None)
