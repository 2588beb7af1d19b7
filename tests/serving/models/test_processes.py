"""Several processes on one store, and what is left of those that are killed."""

import os
import signal
import subprocess
import sys

import pytest
from model_folders import blobs, folder, gguf, leftovers, safetensors

from ridgeline.errors import ModelError
from ridgeline.serving.models.store import ModelStore

SIZE = 20 << 20

#: Copies, stops when some bytes are there, and says so; goes on when its input ends.
COPIES = """
import sys
from pathlib import Path
from ridgeline.serving.models.store import ModelStore
root, verb, what = sys.argv[1:]
def say(text):
    print(text, flush=True)
begun = []
def told(done, total):
    if not begun and done >= 4 << 20:
        begun.append(done)
        say("copying")
        sys.stdin.read()
store = ModelStore(Path(root), waiting=lambda _: say("waiting"))
path = getattr(store, verb)(what, progress=told)
say(f"copied {len(begun)}")
"""

#: A process for each call that changes the disk, killed just before it, until one is done.
KILLED = """
import os, signal, sys
from pathlib import Path
from ridgeline.serving.models import copying
from ridgeline.serving.models.store import ModelStore
copying._PARALLEL = 1
root, source, verb, at = Path(sys.argv[1]), *sys.argv[2:]
calls = 0
def counted(true):
    def call(*arguments, **more):
        global calls
        calls += 1
        if calls == int(at):
            os.kill(os.getpid(), signal.SIGKILL)
        return true(*arguments, **more)
    return call
for name in ("link", "rename", "replace", "unlink", "mkdir", "write", "fsync", "rmdir", "chmod"):
    setattr(os, name, counted(getattr(os, name)))
store = ModelStore(root)
match verb:
    case "add": store.add(source, name="new")
    case "remove": store.remove("old")
    case "limit": store.limit("1B")
    case "resolve": store.resolve("old")
"""


def start(root, verb, what):
    return subprocess.Popen(
        [sys.executable, "-c", COPIES, str(root), verb, str(what)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_copy_that_is_killed_leaves_nothing_that_could_be_loaded(root, tmp_path):
    source = folder(tmp_path / "m", size=SIZE)
    store = ModelStore(root)
    with start(root, "add", source) as process:
        assert process.stdout.readline() == "copying\n"
        torn = [one for one in (root / "incoming").rglob("*.safetensors") if one.stat().st_size]
        assert torn != []
        process.send_signal(signal.SIGKILL)
    assert (store.versions(), blobs(root)) == ([], set())
    assert leftovers(root) != []
    version = store.add(str(source), name="m")  # and a dead holder's lock is free
    assert leftovers(root) == []
    loaded = store.resolve("m") / "model.safetensors"
    assert loaded.read_bytes() == safetensors(SIZE)
    assert store.verify() == ([version.digest], [])


def test_two_processes_that_need_a_version_at_once_copy_it_once(root, tmp_path):
    store = ModelStore(root)
    version = store.add(str(folder(tmp_path / "m", size=SIZE)))
    store.limit("1B")
    store.limit(None)
    with start(root, "resolve", version.id) as one:
        assert one.stdout.readline() == "copying\n"
        with start(root, "resolve", version.id) as other:
            assert other.stdout.readline() == "waiting\n"
            one.stdin.close()
            assert one.stdout.readline() == "copied 1\n"
            assert other.stdout.readline() == "copied 0\n"
    assert store.verify()[1] == []


def test_a_waiting_process_takes_over_from_one_that_is_killed(root, tmp_path):
    store = ModelStore(root)
    version = store.add(str(folder(tmp_path / "m", size=SIZE)))
    store.limit("1B")
    store.limit(None)
    with start(root, "resolve", version.id) as one:
        assert one.stdout.readline() == "copying\n"
        with start(root, "resolve", version.id) as other:
            assert other.stdout.readline() == "waiting\n"
            one.kill()
            assert other.stdout.readline() == "copying\n"
            other.stdin.close()
            assert other.stdout.readline() == "copied 1\n"
    assert store.verify()[1] == []
    assert len(leftovers(root)) <= 1


def test_two_processes_that_add_the_same_at_once_get_one_version(root, tmp_path):
    source = folder(tmp_path / "m", size=SIZE)
    with start(root, "add", source) as one:
        assert one.stdout.readline() == "copying\n"
        with start(root, "add", source) as other:
            assert other.stdout.readline() == "waiting\n"
            one.stdin.close()
            other.stdin.close()
            assert one.stdout.readline() == "copied 1\n"
            assert other.stdout.readline() == "copying\n"  # it reads, and copies nothing
    store = ModelStore(root)
    assert len(store.versions()) == 1
    assert store.verify()[1] == []


USES = """
import sys
from pathlib import Path
from ridgeline.serving.models.store import ModelStore
with ModelStore(Path(sys.argv[1])).in_use("m"):
    print("used", flush=True)
    sys.stdin.read()
"""


def test_a_version_that_another_process_uses_stays_until_that_process_is_gone(root, tmp_path):
    store = ModelStore(root)
    store.add(str(gguf(tmp_path / "m.gguf")), name="m")
    with subprocess.Popen(
        [sys.executable, "-c", USES, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"used\n"
        with pytest.raises(ModelError, match="is in use"):
            store.remove("m")
        with pytest.raises(ModelError, match="is in use"):
            store.limit("1B")
        assert store.versions()[0].is_used
        process.kill()
        process.wait()
        assert not store.versions()[0].is_used
        assert store.remove("m").is_gone


@pytest.mark.parametrize("verb", ["add", "remove", "limit", "resolve"])
def test_a_kill_at_any_moment_leaves_a_store_that_is_whole(tmp_path, verb):
    """Whatever it was doing: no torn version, no lost blob, and doing it again succeeds."""
    old, new = folder(tmp_path / "old"), folder(tmp_path / "new", fill=1)
    for one in (old, new):
        (one / "chat_template.jinja").unlink()
        (one / "tokenizer.json").unlink()
    for at in range(1, 500):
        root = tmp_path / f"store{at}"
        store = ModelStore(root)
        store.add(str(old), name="old")
        if verb == "resolve":
            store.limit("1B")
            store.limit(None)
        arguments = [str(root), str(new), verb]
        status = _forked(KILLED, [*arguments, str(at)])
        assert store.verify()[1] == [], f"killed before call {at}"
        store.limit(None)
        if "old" in {name for one in store.versions() for name in one.names}:
            assert (store.resolve("old") / "model.safetensors").read_bytes() == safetensors()
        if status == 0:
            break
        assert status == -signal.SIGKILL
        match verb:
            case "add":
                assert all(one.is_here for one in store.versions())
                store.add(str(new), name="new")
                assert (store.resolve("new") / "model.safetensors").is_file()
            case "remove":
                for one in store.versions():
                    store.remove(one.version.id)
                store.add(str(old), name="old")
            case "limit":
                store.limit("1B")
                store.limit(None)
                store.resolve("old")
            case "resolve":
                store.add(str(old))
        assert store.resolve("old").is_dir()
        assert leftovers(root) == []
        versions = [one.version for one in store.versions()]
        assert blobs(root) == {blob for version in versions for blob in version.blobs}
    else:
        pytest.fail("it never came to its end")
    assert at > 8


def _forked(code, arguments):
    """The exit status of a fork of this process that runs the code: a start costs nothing so."""
    pid = os.fork()
    if not pid:
        sys.argv = ["-c", *arguments]
        try:
            exec(code, {})
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
