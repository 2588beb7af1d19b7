"""A platform without real models: how replicas are started, and that nothing is left behind."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from ridgeline.cli.fake_replica import fake_replica
from ridgeline.errors import LaunchError, ModelError, SpecError
from ridgeline.launch.local import cores
from ridgeline.launch.running import read
from ridgeline.platform.launches import launch_of
from ridgeline.platform.live import LivePlatform
from ridgeline.spec import parse


class Seen:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.is_ready = asyncio.Event()
        self.is_dead = asyncio.Event()
        self.url = ""

    def started(self, url, models) -> None:
        self.events.append("started")
        self.url = url

    def stage(self, replica, event) -> None:
        self.events.append(f"{replica} {event['event']}")

    def died(self, replica, reason) -> None:
        self.events.append(f"{replica} died")
        self.is_dead.set()

    def joined(self, replica, url, is_ready) -> None:
        self.events.append(f"{replica} {'ready' if is_ready else 'absent'}")

    def ready(self, url) -> None:
        self.events.append("ready")
        self.is_ready.set()

    def draining(self) -> None:
        self.events.append("draining")


def test_threads_are_shared_among_the_replicas(tmp_path):
    weights = tmp_path / "m.gguf"
    weights.touch()
    text = f"models: [{{name: a, model: '{weights}', replicas: {{min: 2}}}}]"
    platform = parse(text, name="p")
    launch = launch_of(platform, platform.models[0], tmp_path)
    first, second = launch(0), launch(1)
    assert (first.name, second.name) == ("a-0", "a-1")
    argv = first.argv
    assert argv[argv.index("--threads") + 1] == str(max(1, cores() // 2))
    assert argv[argv.index("--speculation") + 1] == "off"
    assert argv[argv.index("serve") + 1] == str(weights)
    assert "--supervised" in argv


@pytest.mark.parametrize(
    "engine",
    [
        "step: 20ms, step_per_seq: 1ms, starting: 2s, loading: 3s, max_seqs: 9, faults: [hang]",
        "accelerator: h100-sxm}, model: llama-3.1-8b, replicas: {min: 1",
    ],
)
def test_a_fake_replica_understands_what_it_is_told(tmp_path, engine):
    platform = parse(f"models: [{{name: a, engine: {{kind: fake, {engine}}}}}]", name="p")
    launch = launch_of(platform, platform.models[0], tmp_path, label="@abc")(3)
    assert launch.name == "a@abc-3"
    command, *options = launch.argv[launch.argv.index("fake-replica") :]
    told = fake_replica.make_context(command, options).params
    assert told["supervised"]
    assert told["usage_log"].name == "a_abc-3"
    assert told["name"] == "a"
    if told["model"] is None:
        assert (told["step_ms"], told["step_ms_per_seq"], told["max_seqs"]) == (20, 1, 9)
        assert (told["starting_s"], told["loading_s"]) == (2, 3)
        assert told["faults"] == ("hang",)
    else:
        assert (told["model"], told["accelerator"]) == ("llama-3.1-8b", "h100-sxm")


def test_a_models_name_does_not_lead_out_of_the_log_folder(tmp_path):
    weights = tmp_path / "m.gguf"
    weights.touch()
    text = f"models: [{{name: ../../org/m, model: '{weights}'}}]"
    platform = parse(text, name="p")
    launch = launch_of(platform, platform.models[0], tmp_path / "logs")(0)
    assert launch.log == tmp_path / "logs" / "_.._org_m-0.log"


def test_weights_that_are_not_here_are_said_before_anything_starts(tmp_path):
    platform = parse("models: [{name: a, model: /no/such.gguf}]", name="p")
    with pytest.raises(ModelError, match=r"no/such\.gguf"):
        LivePlatform(platform, Seen())


def test_a_key_that_is_not_in_the_environment_is_said(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    text = (
        "models: [{name: a, engine: {kind: url, urls: ['http://127.0.0.1:1']}}]\n"
        "gateway: {api_key_env: NO_SUCH_KEY}"
    )
    with pytest.raises(SpecError, match="NO_SUCH_KEY is not set") as caught:
        LivePlatform(parse(text, name="p"), Seen())
    assert caught.value.where == "gateway.api_key_env"


@pytest.fixture
async def server():
    """A server that runs already: it lists one model and answers completions."""
    app = web.Application()
    models = {"object": "list", "data": [{"id": "big", "object": "model"}]}

    async def list_models(_request):
        return web.json_response(models)

    async def complete(_: web.Request) -> web.Response:
        return web.json_response({"choices": [{"text": "x"}]})

    app.router.add_get("/v1/models", list_models)
    app.router.add_post("/v1/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_server_by_url_is_served_until_stopped_and_nothing_is_left(server):
    text = f"""
name: mine
models: [{{name: big, engine: {{kind: url, urls: ['{server}']}}}}]
gateway: {{listen: '127.0.0.1:0'}}
"""
    seen, stop = Seen(), asyncio.Event()
    running = asyncio.create_task(LivePlatform(parse(text, name="p"), seen).run(stop))
    await seen.is_ready.wait()
    assert [one.name for one in read()] == ["mine"]
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{seen.url}/v1/models") as answer:
                listed = [model["id"] for model in (await answer.json())["data"]]
            if listed == ["big"]:
                break
    stop.set()
    await running
    assert seen.events == ["started", "big-0 ready", "ready", "draining"]
    assert read() == []


async def test_a_port_that_is_taken_is_a_spec_error_with_a_remedy(server):
    port = server.rpartition(":")[2]
    text = f"""
models: [{{name: big, engine: {{kind: url, urls: ['{server}']}}}}]
gateway: {{listen: '127.0.0.1:{port}'}}
"""
    with pytest.raises(SpecError, match=f"port {port} is taken") as caught:
        await LivePlatform(parse(text, name="p"), Seen()).run(asyncio.Event())
    assert "--port" in caught.value.remedy


@pytest.mark.parametrize("least", [0, 1])
async def test_who_asks_before_the_first_replica_is_there_is_held_and_answered(least):
    text = f"""
models: [{{name: m, engine: {{kind: fake, step: 1ms}}, replicas: {{min: {least}, max: 1}}}}]
gateway: {{listen: '127.0.0.1:0'}}
"""
    seen, stop, listens = Seen(), asyncio.Event(), asyncio.Event()

    async def ask(url: str) -> int:
        body = {"model": "m", "prompt": "a", "max_tokens": 2}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/v1/completions", json=body) as answer,
        ):
            return answer.status

    def started(url, models) -> None:
        seen.url = url
        listens.set()

    seen.started = started
    running = asyncio.create_task(LivePlatform(parse(text, name="p"), seen).run(stop))
    async with asyncio.timeout(30):
        await listens.wait()
        assert await ask(seen.url) == 200
    stop.set()
    await running


async def test_a_sleeping_model_that_cannot_start_takes_nobody_down_with_it():
    text = """
models:
  - {name: good, engine: {kind: fake, step: 1ms}}
  - {name: bad, engine: {kind: fake, faults: [nonsense]}, replicas: {min: 0, max: 1}}
gateway: {listen: '127.0.0.1:0'}
"""
    seen, stop = Seen(), asyncio.Event()
    running = asyncio.create_task(LivePlatform(parse(text, name="p"), seen).run(stop))
    await asyncio.wait_for(seen.is_ready.wait(), 30)

    async def ask(session: aiohttp.ClientSession, model: str) -> int:
        body = {"model": model, "prompt": "a", "max_tokens": 2}
        async with session.post(f"{seen.url}/v1/completions", json=body) as answer:
            return answer.status

    async with aiohttp.ClientSession() as session:
        held = asyncio.create_task(ask(session, "bad"))
        await asyncio.wait_for(seen.is_dead.wait(), 30)
        assert await ask(session, "good") == 200
        held.cancel()
    stop.set()
    await running
    assert "bad-0 died" in seen.events
    assert "good-0 ready" in seen.events


async def test_a_model_that_is_always_there_and_cannot_start_ends_it_with_the_reason():
    text = """
models: [{name: bad, engine: {kind: fake, faults: [nonsense]}}]
gateway: {listen: '127.0.0.1:0'}
"""
    platform = LivePlatform(parse(text, name="p"), Seen())
    with pytest.raises(LaunchError, match="nonsense"):
        await asyncio.wait_for(platform.run(asyncio.Event()), 30)
    assert read() == []
