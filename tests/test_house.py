"""Rules of the house that no linter knows."""

import ast
import re
from pathlib import Path

from ridgeline import errors
from ridgeline.cli import VERBS

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BANNED = {"utils", "helpers", "common", "manager", "base", "misc"}


def test_every_module_says_what_it_is_for():
    silent = [str(path) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_no_file_is_named_after_nothing():
    assert [path for path in SOURCES if path.stem in BANNED] == []


def test_functions_fit_a_screen():
    long = [
        f"{path.name}:{node.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.body[0].lineno > 70
    ]
    assert long == []


def test_every_command_is_in_the_docs():
    text = "\n".join(path.read_text() for path in DOCS)
    assert [verb for verb in VERBS if f"ridgeline {verb}" not in text] == []


def test_the_tree_of_errors_names_every_error():
    tree = errors.__doc__ or ""
    names = [name for name, value in vars(errors).items() if isinstance(value, type)]
    assert [name for name in names if name not in tree] == []


def test_every_dependency_has_its_reason():
    reasons = (ROOT / "docs/decisions/0002-dependencies.md").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    section = project[project.index("dependencies = [") : project.index("[project.scripts]")]
    names = set(re.findall(r'"([a-z][a-z0-9-]*)[^"]*"', section)) - {"ridgeline"}
    assert [name for name in sorted(names) if name not in reasons.lower()] == []


def test_decisions_are_numbered_once_each():
    numbers = [path.name[:4] for path in (ROOT / "docs/decisions").glob("*.md")]
    assert len(numbers) == len(set(numbers))


def test_links_between_documents_lead_somewhere():
    broken = [
        f"{path.name}: {target}"
        for path in [*DOCS, ROOT / "CONTRIBUTING.md"]
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text())
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert broken == []


def test_sources_hold_no_machine_paths():
    pattern = re.compile(r"(?<![\w.])/(?:root|home)/\w+")
    found = [
        str(path.relative_to(ROOT))
        for path in [*SOURCES, *DOCS]
        if pattern.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []
