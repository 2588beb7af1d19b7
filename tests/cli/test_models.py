"""`ridgeline models`: what it prints, its exit status, and that the store follows."""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ridgeline.catalog.packaged import DEFAULT_MODEL, PACKAGED
from ridgeline.cli.models import models
from ridgeline.errors import ModelError, SpecError
from ridgeline.serving.models.store import ModelStore


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("RIDGELINE_MODELS", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "Tiny-Chat.gguf"
    path.write_bytes(b"GGUF" + bytes(9_996))
    return str(path)


def run(*words, status=0):
    done = CliRunner().invoke(models, words, catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done


def test_add_says_the_id_and_how_a_spec_names_it(root, source):
    done = run("add", source, "--engine", "dtype=int8")
    version = ModelStore(root).find("tiny-chat")
    assert done.stdout.splitlines() == [
        f"{version.id} is added: 10 kB in 1 file",
        "tiny-chat leads to it.   In a spec: model: store:tiny-chat",
    ]
    assert version.engine == {"dtype": "int8"}
    assert run("add", source, "--engine", "dtype=int8").stdout.startswith(
        f"{version.id} is here already"
    )


def test_progress_in_a_pipe_is_a_line_for_each_tenth_beside_the_output(tmp_path):
    path = tmp_path / "big.gguf"
    path.write_bytes(b"GGUF" + bytes(40 << 20))
    done = run("add", str(path), "--json")
    tenths = range(10, 101, 10)
    assert done.stderr.splitlines() == [f"copying {part} % of 41.94 MB" for part in tenths]
    assert json.loads(done.stdout)["bytes"] == (40 << 20) + 4


def test_list_is_a_table_and_the_same_as_json(root, source, tmp_path):
    assert "ridgeline models add" in run("list").stdout
    run("add", source, "--name", "chat:v1", "--pin", "--engine", "max_seqs=8")
    lines = run("list").stdout.splitlines()
    version = ModelStore(root).find("chat:v1")
    assert lines[0].split() == ["name", "version", "size", "state", "used", "engine", "source"]
    assert lines[1].startswith(f"chat:v1  {version.digest[:12]}  10 kB  here, pinned  ")
    assert lines[1].endswith(f"max_seqs=8  {source}")
    assert lines[2] == "10 kB in all, no limit"
    told = json.loads(run("list", "--json").stdout)
    assert (told["bytes"], told["limit_bytes"]) == (10_000, None)
    (only,) = told["versions"]
    assert only["id"] == version.id
    assert only["files"] == [
        {"path": "model.gguf", "bytes": 10_000, "sha256": version.files[0].sha256}
    ]


def test_verify_says_which_file_is_bad_and_leaves_with_1(root, source):
    run("add", source, "--name", "chat")
    assert run("verify").stdout == "1 version read: every byte is as it was\n"
    path = ModelStore(root).resolve("chat")
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    short = f"sha256:{ModelStore(root).find('chat').digest[:12]}"
    done = run("verify", "chat", status=1)
    assert done.stdout.splitlines() == [
        f"{short}  model.gguf: its content has changed",
        "1 version read: 1 bad",
        "  ridgeline models verify --repair",
    ]
    bad = json.loads(run("verify", "--json", status=1).stdout)["bad"]
    assert [one["path"] for one in bad] == ["model.gguf"]
    assert "copied again" in run("verify", "--repair").stdout
    run("verify")


def test_rm_takes_names_then_the_version_and_refuses_what_is_kept(root, source):
    run("add", source, "--name", "a", "--pin")
    run("name", "a", "b")
    assert run("rm", "a").stdout == "a is removed; the version stays for its other names\n"
    with pytest.raises(ModelError, match="is pinned"):
        run("rm", "b")
    run("unpin", "b")
    with ModelStore(root).in_use("b"), pytest.raises(ModelError, match="is in use"):
        run("rm", "b")
    assert run("rm", "b").stdout.endswith("is removed: 10 kB free again\n")
    with pytest.raises(ModelError, match="no version 'b'"):
        run("rm", "b")


def test_limit_is_said_and_set(source):
    run("add", source, "--name", "a")
    assert run("limit").stdout == "10 kB in all, no limit\n"
    assert run("limit", "1kB").stdout == "0 B in all, of 1 kB at most\n"
    assert "not here" in run("list").stdout
    with pytest.raises(ModelError, match="bytes are not here"):
        run("verify", "a")
    assert run("limit", "none").stdout == "0 B in all, no limit\n"


@pytest.mark.parametrize(
    ("setting", "problem"),
    [("dtyp=int8", "dtyp"), ("dtype=int9", "dtype"), ("dtype", "is not KEY=VALUE")],
)
def test_a_slip_in_an_engine_setting_does_not_become_immutable(root, source, setting, problem):
    with pytest.raises(SpecError, match=problem):
        run("add", source, "--engine", setting)
    assert not root.exists()


def test_a_file_whose_name_would_not_do_needs_another(tmp_path):
    path = tmp_path / "my model.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="'my model' is no name"):
        run("add", str(path))
    run("add", str(path), "--name", "mine")


def test_the_guide_shows_what_is_printed(root):
    """Each `$ ridgeline models …` of the guide, in order, with the lines below it."""
    if PACKAGED[DEFAULT_MODEL].path() is None:
        pytest.skip(f"the packaged model {DEFAULT_MODEL} is not installed")
    guide = Path(__file__).parents[2] / "docs" / "guide" / "models.md"
    shown = [one[4:] for one in guide.read_text().splitlines() if one.startswith("    ")]
    begin = next(at for at, line in enumerate(shown) if line.startswith("$ "))
    end = max(at for at, line in enumerate(shown) if line.startswith("$ ")) + 2
    printed = []
    for line in shown[begin:end]:
        if line.startswith("$ "):
            printed += [line, *run(*line.split()[3:]).stdout.splitlines()]
    printed = [re.sub(r"\d{4}-\d\d-\d\d", "…", line) for line in printed]
    assert printed == shown[begin:end]
