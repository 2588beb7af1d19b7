"""The view Models in a real browser: replicas and why, versions, rollouts and their evidence."""

import asyncio
import json
import re
import time
from contextlib import asynccontextmanager

from aiohttp import ClientSession
from sqlalchemy import insert

from console_pages import (
    EVIL,
    a_page,
    a_replica,
    browse,
    console,
    in_a_browser,
    ready,
    shown_whole,
    text_of,
)
from ridgeline.platform.live import LivePlatform
from ridgeline.serving.gateway.app import Gateway
from ridgeline.serving.gateway.config import ReplicaAddress
from ridgeline.spec import parse
from ridgeline.store.tables import scale_decisions
from ridgeline.web.console import mount_console

VIEWS = ("now", "models", "tenants", "routing", "cost")
OLD, NEW = "4f0c9a1b22de", "b71e03c4d5aa"


def a_version(name: str, share: float, replicas: int, ready: int, leaving: int = 0) -> dict:
    return {
        "id": name, "share": share, "replicas": replicas, "ready": ready, "leaving": leaving
    }  # fmt: skip


def a_model(name: str, **told: object) -> dict:
    versions = [a_version(OLD, 1.0, 3, 2, 1), a_version(NEW, 0.25, 1, 1)]
    known = {"model": name, "least": 0, "most": 12, "start_s": 12.34, "versions": versions}
    decided = {"wanted": 3, "demand": 20, "reason": "up to 3: 20 requests, 8 a replica"}
    return {**known, **decided, **told}


def a_rollout(model: str, **told: object) -> dict:
    now_ns = time.time_ns()
    gates = [
        {"name": "TTFT", "ratio": 1.31, "is_worse": True, "reason": "TTFT 1.31 times that before"},
        {"name": "TPOT", "ratio": None, "is_worse": False, "reason": "TPOT: too little was seen"},
        {"name": "errors", "ratio": None, "is_worse": False, "reason": "0 of 112 requests failed"},
    ]
    seen = {"planned": 340, "requests": {"old": 345, "new": 112}, "gates": gates}
    return {
        "id": "ro-0badcafe",
        "model": model,
        "phase": "canary",
        "step": 1,
        "steps": [0.05, 0.25, 0.5],
        "since_ns": now_ns - 75_000_000_000,
        "began_ns": now_ns - 300_000_000_000,
        "reason": "nothing worse in 340 requests; 25% of requests",
        "wish": "",
        "old": {"id": OLD, "model": "smollm2", "engine": {"dtype": "bf16", "max_seqs": 8}},
        "new": {"id": NEW, "model": "smollm2", "engine": {"dtype": "int8", "max_seqs": 8}},
        "evidence": {**seen, "verdict": "wait"},
        **told,
    }


def decided(gateway: Gateway, model: str, *changes: tuple[float, int, int, str]) -> None:
    """These numbers of replicas changed, so many seconds ago."""
    rows = [
        {
            "model": model,
            "at_ns": time.time_ns() - round(ago_s * 1e9),
            "before": before,
            "replicas": after,
            "demand": 4 * after,
            "queued": 0,
            "reason": reason,
        }
        for ago_s, before, after, reason in changes
    ]
    with gateway.store.begin() as connection:
        connection.execute(insert(scale_decisions), rows)


@asynccontextmanager
async def scaled(name: str, *rollouts: dict, **told: object):
    """A gateway whose control plane says this of a model that one replica really serves."""
    async with a_replica(name) as replica, console() as (url, gateway):
        gateway.add_replica(ReplicaAddress(f"{name}-0", replica, name, version=OLD))
        await ready(gateway)
        gateway.control = lambda: {"models": [a_model(name, **told)], "rollouts": list(rollouts)}
        decided(gateway, name, (400, 0, 1, "up to 1: somebody asks"), (90, 1, 3, f"up to {EVIL}"))
        yield url, gateway


def part(dom: str, name: str) -> str:
    """The text of the first card's part, without its tags."""
    found = re.search(rf'<(\w+)[^>]*data-part="{name}"[^>]*>(.*?)</\1>', dom, re.S)
    assert found, f"no {name} on the page"
    return re.sub(r"<[^>]+>", " ", found[2])


@in_a_browser
async def test_a_model_shows_how_many_are_wanted_why_and_what_there_is(tmp_path) -> None:
    async with scaled("smollm2") as (url, _):
        dom, said = await browse(f"{url}/#models", tmp_path)
    assert said == []
    dom = dom.split("<template")[0]
    assert "3 wanted, 3 ready" in part(dom, "wanted")
    assert ">up to 3: 20 requests, 8 a replica</span>" in dom
    assert "0 to 12 replicas  ·  a start takes 12.34 s" in dom
    versions = part(dom, "versions")
    assert OLD in versions
    assert re.search(r"100\.0 %\s+2 of 3\s+1\b", versions)
    assert re.search(r"25\.0 %\s+1 of 1\s+–", versions)
    replicas = part(dom, "replicas")
    assert re.search(rf"ready\s+smollm2-0\s+{OLD}", replicas)
    decisions = part(dom, "decisions")
    assert re.search(r"1 → 3\s+12\s+up to &lt;img", decisions)
    assert re.search(r"0 → 1\s+4\s+up to 1: somebody asks", decisions)
    assert (
        'aria-label="Replicas of smollm2 over a quarter of an hour: now 3 wanted, 3 ready"' in dom
    )
    assert re.search(r'<section[^>]*data-part="rollout" hidden', dom)


@in_a_browser
async def test_a_rollout_shows_where_it_is_what_differs_and_what_its_gate_saw(tmp_path) -> None:
    wish = a_rollout("smollm2", wish="abort")
    async with scaled("smollm2", wish) as (url, _):
        dom, said = await browse(f"{url}/#models", tmp_path)
    assert said == []
    dom = dom.split("<template")[0]
    assert re.search(r'<li class="here" aria-current="step">25 %</li>', dom)
    assert dom.count('<li class="past"') == 2
    assert re.search(r'data-state="loading"[^>]*>25 % of requests<', dom)
    assert re.search(r"for 1 min \d+ s", dom)
    assert "An operator asked for it to go back." in dom
    assert re.search(r"dtype\s+bf16\s+int8", part(dom, "differences"))
    assert "max_seqs" not in part(dom, "differences")
    assert ">112 of 340 planned</span>" in dom
    gates = part(dom, "gates")
    assert re.search(r"TTFT\s+1\.31 ×\s+worse\s+TTFT 1\.31 times", gates)
    assert re.search(r"TPOT\s+–\s+not known", gates)
    assert re.search(r"errors\s+–\s+no worse", gates)
    assert "ridgeline rollout abort smollm2 platform.yaml" in part(dom, "rollout-next")


@in_a_browser
async def test_one_that_went_back_says_why_and_an_earlier_one_is_kept(tmp_path) -> None:
    back = a_rollout("smollm2", phase="back", step=0, reason="it is worse: TTFT 1.31 times")
    async with scaled("smollm2", back) as (url, _):
        dom, said = await browse(f"{url}/#models", tmp_path)
    assert said == []
    dom = dom.split("<template")[0]
    assert '<li class="here bad" aria-current="step">went back</li>' in dom
    assert "it is worse: TTFT 1.31 times" in dom
    assert part(dom, "rollout-next").strip() == ""


@in_a_browser
async def test_names_from_outside_stay_text_and_a_command_quotes_them(tmp_path) -> None:
    hostile = f"{EVIL}'$(id)"
    evil = {"id": EVIL, "model": EVIL, "engine": {EVIL: EVIL, "env": {"TOKEN": "s3cret"}}}
    rollout = a_rollout(hostile, reason=EVIL, id=EVIL, new=evil)
    rollout["evidence"]["gates"][0].update(name=EVIL, reason=EVIL)
    versions = [a_version(EVIL, 1.0, 1, 1)]
    async with scaled(hostile, rollout, reason=EVIL, versions=versions) as (url, _):
        dom, said = await browse(f"{url}/#models", tmp_path)
    assert said == []
    assert "<title>Ridgeline</title>" in dom
    assert "<img src=x" not in dom.replace('"', "")
    assert dom.count("&lt;img src=x onerror=") >= 12
    assert "abort '&lt;img" in dom
    assert r"'\''$(id)' platform.yaml" in dom
    assert "s3cret" not in dom  # of an environment only the names
    assert ">TOKEN</td>" in dom


@in_a_browser
async def test_with_none_wanted_the_gateway_sleeps_and_says_who_is_held(tmp_path) -> None:
    async with console() as (url, gateway):
        asleep = a_model("big", wanted=0, demand=0, reason="down to 0: nothing for 300 s")
        asleep["versions"] = [a_version(OLD, 1.0, 0, 0)]
        gateway.control = lambda: {"models": [asleep], "rollouts": []}
        plain = gateway.status
        gateway.status = lambda: {**plain(), "held": {"big": 2}}
        dom, said = await browse(f"{url}/#models", tmp_path)
    assert said == []
    assert text_of(dom, "overall") == "asleep until somebody asks"
    assert "0 wanted, 0 ready" in part(dom, "wanted")
    assert "2 requests are held until one is ready." in dom


@in_a_browser
async def test_servers_that_run_already_are_shown_and_said_to_be_that(tmp_path) -> None:
    async with a_replica("theirs") as replica, console() as (url, gateway):
        gateway.add_replica(ReplicaAddress("theirs-0", replica))
        await ready(gateway)
        dom, said = await browse(f"{url}/#models", tmp_path)
    assert said == []
    assert "1 of 1 ready" in part(dom, "wanted")
    assert "Servers that run already: nothing here starts or stops them." in dom
    assert re.search(r'data-part="curves" hidden', dom.split("<template")[0])


@in_a_browser
async def test_no_view_has_to_be_scrolled_sideways_on_a_phone_or_a_laptop(tmp_path) -> None:
    """With names as long as they come, and no space to break them at."""
    name = "meta-llama/Llama-3.1-405B-Instruct-" + "x" * 60
    async with scaled(name, a_rollout(name)) as (url, gateway), a_page(tmp_path) as page:
        async with ClientSession() as client:
            body = {"model": name, "stream": True, "messages": []}
            async with client.post(f"{url}/v1/chat/completions", json=body) as answer:
                await answer.read()
        await shown_whole(gateway, requests=1)
        for width, height in ((390, 844), (1280, 800)):
            for view in VIEWS:
                await page.open(f"{url}/#{view}", width, height)
                await page.until("document.getElementById('overall').dataset.state === 'ready'")
                if view == "models":
                    await page.until("document.querySelector('[data-part=decisions] tbody tr')")
                wide = await page.value("document.documentElement.scrollWidth")
                assert wide <= width, (view, width)
                inside = "[...document.querySelectorAll('.scroll')].filter("
                inside += "one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerHTML)"
                assert width > 700 or await page.value(inside) == [], view
        assert page.said == []


@in_a_browser
async def test_a_chart_is_read_with_the_arrow_keys(tmp_path) -> None:
    async with scaled("smollm2") as (url, _), a_page(tmp_path) as page:
        await page.open(f"{url}/#models", 1280, 800)
        await page.until("document.querySelector('[data-part=decisions] tbody tr')")
        await page.value("document.querySelector('[data-part=count]').focus()")
        at = "document.querySelector('[data-part=count-at]').textContent"
        for _ in range(30):
            await page.press("ArrowLeft")
        assert await page.value(at) == "2 min 30 s ago: 1 wanted, ready not seen"
        for _ in range(29):
            await page.press("ArrowRight")
        assert await page.value(at) == "5 s ago: 3 wanted, 3 ready"
        assert page.said == []


class Watcher:
    """Waits for the first replica to be ready; draws nothing."""

    def __init__(self) -> None:
        self.url = asyncio.get_running_loop().create_future()

    def started(self, url, models) -> None: ...

    def stage(self, replica, event) -> None: ...

    def died(self, replica, reason) -> None: ...

    def joined(self, replica, url, is_ready) -> None: ...

    def ready(self, url) -> None:
        self.url.set_result(url)

    def draining(self) -> None: ...


@in_a_browser
async def test_a_platform_that_runs_shows_its_replica_and_what_its_start_took(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("RIDGELINE_STATE", str(tmp_path / "state"))
    spec = (
        "models: [{name: chat, engine: {kind: fake, loading: 100ms}, replicas: {min: 1, max: 3}}]"
    )
    platform = parse(f'{spec}\ngateway: {{listen: "127.0.0.1:0"}}', name="shown")
    watcher, stop = Watcher(), asyncio.Event()
    live = LivePlatform(platform, watcher)
    live.mount(mount_console)
    run = asyncio.create_task(live.run(stop))
    try:
        async with asyncio.timeout(60):
            url = await watcher.url
            async with ClientSession() as client:
                wanted = None
                while wanted is None:  # the autoscaler's first round
                    async with client.get(f"{url}/console.json") as answer:
                        told = json.loads(await answer.text())
                    wanted = told["control"]["models"][0].get("wanted")
        dom, said = await browse(f"{url}/#models", tmp_path / "browser")
    finally:
        stop.set()
        await run
    assert said == []
    dom = dom.split("<template")[0]
    assert "1 wanted, 1 ready" in part(dom, "wanted")
    assert "1 to 3 replicas" in dom
    assert "chat-0" in part(dom, "replicas")
    assert re.search(r"\d m?s", part(dom, "replicas"))
    assert "The number of replicas has not changed." in dom
