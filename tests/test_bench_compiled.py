"""The compiled copy: made of today's source or anew, and it decides the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import compiled
from ridgeline.errors import LaunchError

CHILD = """
from ridgeline.serving.fake.timing import machine
from ridgeline.serving.policy import batch
from ridgeline.serving.simulate.routing import routed
from ridgeline.serving.simulate.talks import chats
talks = chats(60, per_s=20.0, turns=4, said_tokens=3000)
outcome = routed(talks, "prefix-sticky", machine("llama-3.1-8b", "h100-sxm"), replicas=3)
print(batch.__file__.rpartition(".")[2], outcome.requests, outcome.digest)
"""


def said(**env: str) -> list[str]:
    command = [sys.executable, "-c", CHILD]
    env = os.environ | env
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return done.stdout.split()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of one module, where nothing is compiled."""
    source = tmp_path / "src"
    source.mkdir()
    (source / "one.py").write_text("ONE = 1\n")
    monkeypatch.setattr(compiled, "SOURCE", source)
    monkeypatch.setattr(compiled, "HOME", tmp_path / "copy")
    monkeypatch.setattr(compiled, "MODULES", ("one",))
    monkeypatch.setattr(compiled, "_BUILD", "import sys; open('built', 'a').write(sys.argv[1])")
    return source


def test_every_module_that_is_compiled_is_there() -> None:
    assert all((compiled.SOURCE / f"{name}.py").is_file() for name in compiled.MODULES)


def test_it_is_made_once_and_anew_when_a_source_has_changed(small: Path) -> None:
    home = compiled.build()
    assert (home / "built").read_text() == "ridgeline/one.py"
    (home / "built").write_text("as it was")
    assert compiled.build() == home
    assert (home / "built").read_text() == "as it was"
    (small / "one.py").write_text("ONE = 2\n")
    compiled.build()
    assert (home / "ridgeline" / "one.py").read_text() == "ONE = 2\n"
    assert (home / "built").read_text() == "ridgeline/one.py"


def test_what_cannot_be_compiled_is_said_and_not_used(small: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(compiled, "_BUILD", "raise SystemExit('no compiler here')")
    with pytest.raises(LaunchError, match="no compiler here"):
        compiled.build()
    assert compiled.main() == 2
    assert "mypyc" in capsys.readouterr().err


@pytest.mark.slow
def test_it_simulates_the_same_to_the_last_event() -> None:
    try:
        home = compiled.build()
    except LaunchError as error:
        pytest.skip(f"nothing can be compiled here: {error}")
    plain, faster = said(), said(PYTHONPATH=str(home))
    assert (plain[0], faster[0]) == ("py", "so")
    assert plain[1:] == faster[1:]
