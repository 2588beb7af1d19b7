"""The metrics and their documentation."""

import re
from pathlib import Path

from ridgeline.serving.gateway.config import GatewayConfig
from ridgeline.serving.gateway.fleet import Fleet
from ridgeline.serving.gateway.metrics import Metrics
from ridgeline.serving.gateway.record import Exchange, Record

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "gateway.md"


def test_every_metric_is_in_the_guide_and_nothing_else() -> None:
    metrics = Metrics(Fleet(GatewayConfig()), Record(0))
    metrics.gap("m", 10**7)
    metrics.finished(Exchange("id", "/v1/completions", 0, 0.0, model="m", status=200))
    types = re.findall(r"# TYPE ridgeline_gateway_(\S+) (\S+)", metrics.text().decode())
    there = {name for name, _ in types if not name.endswith("_created")}
    section = GUIDE.read_text(encoding="utf-8").partition("## Metrics")[2].partition("## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == there
