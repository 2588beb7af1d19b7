"""The ledger: systems that have to work, claims about them, and what proves or computes each.

`systems.csv` and `claims.csv` are data of the product. `proofs.json` is written by `make prove`:
for each row the tests that carry its id and how they ended. In a checkout the tests are read
from their sources, so that a new test shows before it was recorded. `workings/*.csv` say how each
claim is computed from the catalog and from laws, and `folklore.csv` why the usual number is wrong.
"""

import ast
import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path


@dataclass(frozen=True, slots=True)
class System:
    """A row of systems.csv: `works` is the statement that a test must prove."""

    id: str
    domain: str
    kind: str
    name: str
    works: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of claims.csv: `computed` is our number, `stated` the one that is usually told.

    `verdict` says how the two compare; `inputs` and `formula` are prose and are never evaluated.
    """

    id: str
    system: str
    claim: str
    inputs: str
    formula: str
    computed: str
    stated: str
    verdict: str
    note: str


@dataclass(frozen=True, slots=True)
class Working:
    """How a claim is computed: one expression (`platform.expressions`), and the unit it is told in.

    `where` is its file and line.
    """

    id: str
    expression: str
    unit: str
    where: str


@dataclass(frozen=True, slots=True)
class Proofs:
    """The last recorded `make prove`: when, of which version, and each test's outcome."""

    recorded: str = ""
    version: str = ""
    tests: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """A system and the tests that prove it; `outcomes` has "passed", "failed" or "not run"."""

    system: System
    outcomes: dict[str, str]

    @property
    def state(self) -> str:
        """One of "proven" (all its tests passed), "failed", "not run" (since added) or "open"."""
        found = set(self.outcomes.values())
        if not found:
            return "open"
        if "failed" in found:
            return "failed"
        return "not run" if "not run" in found else "proven"


def systems() -> list[System]:
    """All rows, in the ledger's order."""
    text = resources.files(__name__).joinpath("systems.csv").read_text(encoding="utf-8")
    return [
        System(row["id"], row["domain"], row["kind"], row["name"], row["works"])
        for row in csv.DictReader(text.splitlines())
    ]


def claims() -> list[Claim]:
    """All claims, in the ledger's order."""
    return [Claim(**row) for row in _table("claims.csv")]


def workings() -> dict[str, Working]:
    """The working of each claim that has one."""
    found: dict[str, Working] = {}
    folder = resources.files(__name__).joinpath("workings")
    names = sorted(one.name for one in folder.iterdir() if one.name.endswith(".csv"))
    for name in names:
        for line, row in _numbered(folder.joinpath(name).read_text(encoding="utf-8")):
            where = f"{name}, line {line}"
            assert row["id"] not in found, f"{where}: {found[row['id']].where} has {row['id']} too"
            found[row["id"]] = Working(row["id"], row["working"], row["unit"], where)
    return found


def folklore() -> dict[str, str]:
    """In our words: what was mixed up where the usual number is wrong, and what ours rests on."""
    return {row["id"]: row["because"] for row in _table("folklore.csv")}


def _table(name: str) -> list[dict[str, str]]:
    text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
    return [row for _, row in _numbered(text)]


def _numbered(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a table, each with the line on which it ends."""
    reader = csv.DictReader(text.splitlines())
    for row in reader:
        yield reader.line_num, row


def recorded() -> Proofs:
    """What the last `make prove` recorded; empty where none was."""
    file = resources.files(__name__).joinpath("proofs.json")
    if not file.is_file():
        return Proofs()
    data = json.loads(file.read_text(encoding="utf-8"))
    return Proofs(data["recorded"], data["version"], data["rows"])


def rows() -> list[Row]:
    """Every system with its tests: from the test sources in a checkout, else as recorded."""
    last = recorded()
    marked = dict(_marked_tests(tests)) if (tests := _tests_folder()) else None
    result = []
    for system in systems():
        known = last.tests.get(system.id, {})
        names = marked.get(system.id, []) if marked is not None else list(known)
        result.append(Row(system, {name: known.get(name, "not run") for name in names}))
    return result


def _tests_folder() -> Path | None:
    """The checkout's tests, when this package runs from its sources."""
    root = Path(__file__).resolve().parents[3]
    tests = root / "tests"
    return tests if (root / "pyproject.toml").is_file() and tests.is_dir() else None


def _marked_tests(tests: Path) -> Iterator[tuple[str, list[str]]]:
    """(row id, test names) from `@pytest.mark.proves("S149")` in the sources."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        name = path.relative_to(tests.parent).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for row in _rows_of(node):
                    found.setdefault(row, []).append(f"{name}::{node.name}")
    yield from found.items()


def _rows_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for mark in node.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.proves":
            for argument in mark.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value
