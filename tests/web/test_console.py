"""The console: what it serves, and what a real browser makes of it."""

import re
from importlib import resources
from urllib.parse import quote

import pytest
from aiohttp import ClientSession

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
from ridgeline.errors import StoreError
from ridgeline.serving.gateway.config import ReplicaAddress
from ridgeline.serving.gateway.tenants import KeySpec, Tenants
from ridgeline.serving.policy.states import State
from ridgeline.serving.tenant_spec import LimitsSpec, TenantSpec

FILES = {
    one.name: one.read_text(encoding="utf-8")
    for one in resources.files("ridgeline.web").iterdir()
    if one.name.endswith((".html", ".css", ".js", ".svg"))
}
SCRIPTS = "\n".join(text for name, text in FILES.items() if name.endswith(".js"))
PARTS = [f"/console/{name}" for name in FILES if name.endswith(".js") and name != "console.js"]
DATA = [
    "/console.json",
    *(f"/console/{name}.json" for name in ("models", "tenants", "routing", "cost")),
    "/console/why.json?id=req-1",
]


async def test_the_page_allows_nothing_from_elsewhere_and_no_frames() -> None:
    async with console() as (url, _), ClientSession() as client:
        for path in ("/", "/console.css", "/console.js", "/console.svg", *PARTS):
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
    assert not re.search(unsafe, SCRIPTS)
    assert not re.search(r"\son[a-z]+=|\sstyle=|<script>", FILES["console.html"])


def test_every_place_that_the_script_fills_is_on_the_page() -> None:
    there = set(re.findall(r'\bid="([^"]+)"', FILES["console.html"]))
    wanted = set(re.findall(r'\$\("([^"]+)"\)', SCRIPTS))
    assert wanted <= there
    assert len(wanted) > 60  # the pattern still finds them


def test_every_part_of_a_card_is_in_its_template() -> None:
    there = re.findall(r'data-part="([^"]+)"', FILES["console.html"])
    wanted = set(re.findall(r'\bpart\("([^"]+)"\)', SCRIPTS))
    assert wanted == set(there)
    assert len(there) == len(set(there))


@pytest.mark.parametrize("state", list(State))
def test_every_state_has_a_look_of_its_own(state: State) -> None:
    assert f'.pill[data-state="{state}"]' in FILES["console.css"]


def made_by(function: str) -> str:
    return rf"function {function}\(\) {{\s+const row = cells\((.*?)\)\(\)"


#: By table, where its rows' cells are made.
ROWS = {
    'id="replicas"': made_by("replicaRow"),
    'id="tenants"': made_by("tenantRow"),
    'id="queues"': r'\$\("queues"\).tBodies\[0\], found, cells\((.*?)\), ',
    'id="recent"': r'(?s)\$\("recent"\).*?const row = cells\((.*?)\)\(\)',
    'id="cost-lines"': r'\$\("cost-lines"\).*?cells\((.*?)\), ',
    'id="earlier"': made_by("earlierRow"),
    'data-part="versions"': made_by("versionRow"),
    'data-part="replicas"': made_by("startRow"),
    'data-part="decisions"': r'part\("decisions"\).*?cells\((.*?)\), ',
    'data-part="differences"': r'part\("differences"\).*?cells\((.*?)\), ',
    'data-part="gates"': made_by("gateRow"),
}


@pytest.mark.parametrize("table", ROWS)
def test_every_column_has_its_heading(table: str) -> None:
    """A row's cells are made in one place and named in another; so are those that narrow hides."""
    cells = re.search(ROWS[table], SCRIPTS)
    assert cells
    of_cells = ["wide" in one.split() for one in re.findall(r'"([^"]*)"', cells[1])]
    head = re.search(rf"<table {table}[^>]*>.*?</thead>", FILES["console.html"], re.S)
    assert head
    of_head = ["wide" in one for one in re.findall(r"<th ([^>]*)>", head[0])]
    assert of_cells == of_head


async def test_only_who_may_watch_sees_everybodys_traffic() -> None:
    async with console(admin_key="s3cret", open=False) as (url, gateway), ClientSession() as client:
        tenants = Tenants(gateway.store)
        tenants.create(TenantSpec(name="a"), actor="test")
        roles = {
            role: tenants.create_key(KeySpec(tenant="a", role=role), actor="test").secret
            for role in ("user", "viewer", "admin")
        }
        for path in DATA:
            seen = {}
            for role, secret in {**roles, "none": "", "platform": "s3cret"}.items():
                bearer = {"Authorization": f"Bearer {secret}"} if secret else {}
                async with client.get(url + path, headers=bearer) as answer:
                    seen[role] = answer.status
                    assert answer.status != 200 or answer.headers["Cache-Control"] == "no-store"
            there = 404 if "why" in path else 200
            assert seen == {
                "none": 401, "user": 403, "viewer": there, "admin": there, "platform": there
            }  # fmt: skip


async def test_what_cannot_be_asked_is_refused_with_the_reason() -> None:
    asked = {
        "/console/cost.json?hours=3": (400, "`hours` is one of 1, 24, 168."),
        "/console/why.json": (400, "`id` is a request's id."),
        f"/console/why.json?id={'x' * 201}": (400, "`id` is a request's id."),
        "/console/why.json?id=req-1": (404, "Nothing is on record"),
    }
    async with console() as (url, _), ClientSession() as client:
        for path, (status, problem) in asked.items():
            async with client.get(url + path) as answer:
                assert answer.status == status
                assert problem in (await answer.json())["error"]["message"]


async def test_a_ledger_that_cannot_be_read_is_a_503_and_the_rest_goes_on(monkeypatch) -> None:
    def broken(*_args: object) -> None:
        raise StoreError("is locked", where="database", remedy="wait")

    for name in ("tenants_view", "routing_view", "cost_view", "decision"):
        monkeypatch.setattr(f"ridgeline.serving.gateway.console_data.{name}", broken)
    monkeypatch.setattr("ridgeline.web.control_data.control_view", broken)
    async with console() as (url, _), ClientSession() as client:
        for path in DATA[1:]:
            async with client.get(url + path) as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
                assert "is locked" in (await answer.json())["error"]["message"]
        async with client.get(url + DATA[0]) as answer:
            assert answer.status == 200


@in_a_browser
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
    assert dom.count('<td class="n wide" data-head="Prompt">77</td>') == 2
    assert ">2 of 256</span>" not in dom  # nothing is there any more
    assert ">0 of 256</span>" in dom
    assert 'aria-label="Output tokens per second over two minutes' in dom


@in_a_browser
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


@in_a_browser
async def test_in_a_browser_each_view_shows_what_it_is_named_for(tmp_path) -> None:
    """And hostile names stay text in each: a model's, a replica's, a client's own request id."""
    hostile = "<img/src=x/onerror=document.title=1>"
    async with a_replica(EVIL) as replica, console() as (url, gateway):
        Tenants(gateway.store).create(
            TenantSpec(name="default", limits=LimitsSpec(concurrent=4)), actor="test"
        )
        gateway.add_replica(ReplicaAddress(EVIL, replica))
        await ready(gateway)
        async with ClientSession() as client:
            body = {"model": EVIL, "stream": True, "messages": []}
            own = {"X-Request-Id": hostile}
            async with client.post(f"{url}/v1/chat/completions", json=body, headers=own) as answer:
                assert answer.status == 200
                await answer.read()
        await shown_whole(gateway, requests=1)
        seen = {
            view: await browse(f"{url}/#{view}", tmp_path / view[:7])
            for view in ("tenants", "routing", "cost", f"why={quote(hostile)}", "why=%E0%A4%A")
        }
    for view, (dom, said) in seen.items():
        assert said == [], view
        assert "<title>Ridgeline</title>" in dom, view
        assert "<img/" not in dom, view
        assert "<img src=x" not in dom.replace('"', ""), view
        assert text_of(dom, "store-says") == "", view
    tenants, routing, cost, why, broken = (dom for dom, _ in seen.values())
    assert "<b>default</b>" in tenants
    assert "0 of 4 at once" in tenants
    assert '<td class="n" data-head="Tokens in">77</td>' in tenants
    assert re.search(r'<p class="reason">[^<]+</p>', routing)
    assert "&lt;img src=x onerror=" in routing
    assert text_of(cost, "cost-price-0") == "–"  # no minute is on record: nothing to show
    assert "the client calls it &lt;img/src=x" in why
    assert re.search(r'<dialog id="why"[^>]* open=""', why)
    assert "77 tokens in (0 cached), 3 out, by usage" in why
    assert not re.search(r'<dialog id="why"[^>]* open=""', broken)


@in_a_browser
async def test_in_a_browser_latency_stays_in_its_card_at_every_width(tmp_path) -> None:
    """However long its numbers are: here they are written in, since no test waits for a day."""
    write = """document.querySelectorAll("#latency td.n").forEach((one) => {
      one.textContent = "86400 s, or more";
    });"""
    measure = """(() => {
      WRITE
      const card = document.querySelector("#latency-card").getBoundingClientRect();
      const parts = document.querySelectorAll("#latency, #latency .spread, #latency .spread i");
      return Math.max(...[...parts].map((one) => one.getBoundingClientRect().right)) - card.right;
    })()""".replace("WRITE", write)
    async with a_replica("smollm2") as replica, console() as (url, gateway):
        gateway.add_replica(ReplicaAddress("smollm2-0", replica))
        await ready(gateway)
        async with ClientSession() as client:
            body = {"model": "smollm2", "stream": True, "messages": []}
            async with client.post(f"{url}/v1/chat/completions", json=body) as answer:
                await answer.read()
        async with a_page(tmp_path) as page:
            for width in (390, 640, 1101, 1280, 1920):
                await page.open(f"{url}/#now", width, 800)
                await page.until("document.querySelectorAll('#latency .spread').length === 3")
                assert await page.value(measure) < 0, width


@in_a_browser
async def test_in_a_browser_a_locked_gateway_asks_for_its_key(tmp_path) -> None:
    async with console(api_key="s3cret") as (url, _):
        dom, _said = await browse(url, tmp_path)
    assert text_of(dom, "overall") == "locked"
    assert re.search(r'<form id="door" class="card">', dom)
    assert re.search(r'<main id="main" hidden="">', dom)


@in_a_browser
async def test_in_a_browser_what_a_page_complains_about_is_seen(tmp_path) -> None:
    """Else the tests above could not fail by a complaint."""
    page = tmp_path / "page.html"
    page.write_text("<script>console.error('seen')</script>")
    _dom, said = await browse(page.as_uri(), tmp_path / "profile")
    assert any("seen" in line for line in said)
