"""The dashboard and the alerts ask for nothing that the gateway does not show."""

import json
import re
from importlib.resources import files

import pytest
import yaml

from ridgeline.serving.gateway.metric_families import FAMILIES, PREFIX, names

FOLDER = files("ridgeline.serving.gateway") / "observe"
DASHBOARD = json.loads((FOLDER / "grafana.json").read_text("utf-8"))
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
SEVERITIES = {"critical", "warning"}


def asked(query: str) -> set[str]:
    return set(re.findall(rf"{PREFIX}\w+", query))


def labels_of(sample: str) -> set[str]:
    for family in FAMILIES.values():
        if sample.removeprefix(PREFIX) in {
            family.sample, *(f"{family.name}_{end}" for end in ("bucket", "sum", "count"))
        }:  # fmt: skip
            return {*family.labels, "le"}
    raise AssertionError(sample)


@pytest.mark.parametrize("query", [*QUERIES, *(rule["expr"] for rule in RULES)])
def test_a_query_names_metrics_and_labels_that_exist(query: str) -> None:
    assert asked(query)
    assert asked(query) <= names()
    known = set().union(*(labels_of(sample) for sample in asked(query)))
    grouped = {
        word.strip() for group in re.findall(r"by \(([^)]*)\)", query) for word in group.split(",")
    }
    chosen = set(re.findall(r'(\w+)=~?"', query))
    assert grouped | chosen <= known
    assert query.count("(") == query.count(")")


def test_a_bucket_is_only_asked_of_a_histogram() -> None:
    for sample in set().union(*map(asked, QUERIES)):
        family = FAMILIES.get(sample.removeprefix(PREFIX).removesuffix("_bucket"))
        if sample.endswith("_bucket"):
            assert family is not None
            assert family.kind == "histogram"


def test_every_metric_is_on_the_dashboard() -> None:
    shown = set().union(*map(asked, QUERIES))
    missing = [
        family.name
        for family in FAMILIES.values()
        if not shown & {PREFIX + family.sample, f"{PREFIX}{family.name}_bucket"}
        and f"{PREFIX}{family.name}_sum" not in shown
    ]
    assert missing == []


def test_panels_have_their_own_numbers_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    squares = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(squares) == len(set(squares))
    assert max(x for x, _ in squares) < 24


def test_every_alert_says_what_it_is_and_how_bad() -> None:
    for rule in RULES:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"Ridgeline\w+", rule["alert"])
        assert rule["labels"]["severity"] in SEVERITIES
        assert set(rule["annotations"]) == {"summary", "description"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
    alerts = [rule["alert"] for rule in RULES]
    assert len(alerts) == len(set(alerts))
