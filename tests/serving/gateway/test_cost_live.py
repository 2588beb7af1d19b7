"""From requests through a running gateway to its metrics, its log and its bill."""

import json
import time
from decimal import Decimal
from pathlib import Path

import aiohttp

from ridgeline.serving.gateway.config import ANY, ModelSettings
from ridgeline.serving.gateway.cost import report
from ridgeline.serving.gateway.usage import Period
from ridgeline.serving.policy.price import Price
from ridgeline.store.database import open_store


async def test_what_a_gateway_did_is_in_its_metrics_its_log_and_its_bill(
    tools, tmp_path: Path
) -> None:
    began_ns = time.time_ns()
    url, log = f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path / "requests.jsonl"
    price = Price(Decimal(1), Decimal("0.5"), Decimal(2))
    settings = {ANY: ModelSettings(price=price, usd_per_hour=Decimal(3600))}
    key = "sk-of-this-gateway-and-nobody-else"
    config = {"database": url, "log_file": str(log), "models": settings, "api_key": key}
    replica = tools.replica()
    async with (
        tools.gateway(replica, **config) as gateway,
        tools.client(gateway, api_key=key) as client,
    ):
        for _ in range(3):
            await tools.ask(client)
        headers = {"Authorization": f"Bearer {key}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{gateway.url}/metrics") as answer,
        ):
            metrics = await answer.text()
    ended_ns = time.time_ns()

    asked = 'endpoint="/v1/chat/completions",model="m",status="200",tenant="default"'
    assert f"ridgeline_gateway_requests_total{{{asked}}} 3.0" in metrics
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    told = [line for line in lines if line["event"] == "request"]
    assert [(line["status"], line["replica"], line["basis"]) for line in told] == [
        (200, "r0", "usage")
    ] * 3
    assert key not in log.read_text()

    store = open_store(url)
    found = report(store, Period(began_ns, ended_ns))
    store.dispose()
    (line,) = found.lines
    assert line.usage.of == ("default", "m")
    assert line.usage.requests == 3
    assert line.usage.charged_usd == sum(Decimal(one["usd"]) for one in told) > 0
    parts = (found.unsettled_usd, found.idle_usd, found.loading_usd, found.drained_usd)
    assert line.floor_usd + sum(parts) == found.bill_usd
    # A dollar a second: the bill is the time for which the gateway knew the replica.
    assert 0 < line.floor_usd < found.bill_usd <= Decimal(ended_ns - began_ns) / 10**9
