"""What all tests share: skips that CI forbids, and the record of proofs."""

import datetime
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ridgeline

# Before anybody imports torch: engines in this process must not spin for the cores that other
# processes of the test need (decisions/0007).
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# Modules of fixtures lie beside this file (tests have no packages).
sys.path.insert(0, str(Path(__file__).parent))
pytest_plugins = ["store_fixtures"]

#: CI installs every program that a test may need, so there nothing may be skipped.
NO_SKIPS = os.environ.get("RIDGELINE_NO_SKIPS") == "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-proofs", metavar="FILE", help="write each ledger row's proofs")


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """`-m proves` needs nothing else; here each id is checked to be a row of the ledger."""
    from ridgeline.ledger import systems

    known = {system.id for system in systems()}
    for item in items:
        for mark in item.iter_markers("proves"):
            unknown = set(mark.args) - known
            if unknown or not mark.args:
                raise pytest.UsageError(f"{item.nodeid}: no such row in the ledger: {unknown}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    report = yield
    if NO_SKIPS and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be: {report.longrepr}"
    if report.when == "call" or report.outcome != "passed":
        _outcomes(item.config)[item.nodeid] = report.outcome
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    file = session.config.getoption("--record-proofs")
    if not file:
        return
    rows: dict[str, dict[str, str]] = {}
    for item in session.items:
        outcome = _outcomes(session.config).get(item.nodeid, "not run")
        name = item.nodeid.partition("[")[0]
        for mark in item.iter_markers("proves"):
            for row in mark.args:
                tests = rows.setdefault(row, {})
                # A parametrised test has proven its row when each of its cases passed.
                if tests.get(name, "passed") == "passed":
                    tests[name] = outcome
    record = {
        "recorded": datetime.date.today().isoformat(),
        "version": ridgeline.__version__,
        "rows": dict(sorted(rows.items())),
    }
    Path(file).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _outcomes(config: pytest.Config) -> dict[str, str]:
    return config.stash.setdefault(_OUTCOMES, {})


_OUTCOMES: pytest.StashKey[dict[str, str]] = pytest.StashKey()


@pytest.fixture(autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes into the user's own state or model store."""
    monkeypatch.setenv("RIDGELINE_STATE", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv("RIDGELINE_MODELS", str(tmp_path_factory.mktemp("models")))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public data beside the checkout, which is never committed."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("the folder ../shared with public data is not here")
    return folder
