import importlib
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from ridgeline.cli import VERBS, ridgeline_command

HEAVY = ["torch", "aiohttp", "numpy", "numba", "pydantic", "transformers", "matplotlib"]


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['ridgeline', '--help']\n"
        "from ridgeline.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert all(verb in done.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verbs_help_says_what_the_table_says(verb):
    module, said = VERBS[verb]
    command = getattr(importlib.import_module(f"ridgeline.cli.{module}"), verb.replace("-", "_"))
    assert isinstance(command, click.Command)
    first = (command.help or "").splitlines()[0]
    assert first.split()[0] == said.split()[0], f"{verb}: {first!r} against {said!r}"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb):
    result = CliRunner().invoke(ridgeline_command, [verb, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_an_unknown_verb_is_bad_input():
    result = CliRunner().invoke(ridgeline_command, ["fly"])
    assert result.exit_code == 2
    assert "fly" in result.output


def test_an_error_is_two_lines_on_stderr_and_status_2(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "ridgeline", "up", str(tmp_path / "none.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "none.yaml: cannot be read" in done.stderr
    assert "try: ridgeline init" in done.stderr
    assert "Traceback" not in done.stderr
