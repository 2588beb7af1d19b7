"""The model store: one content, one version; nothing is lost, nothing is left."""

import errno
import os
import shutil
import threading
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_folders import blobs, folder, gguf, leftovers, safetensors

from ridgeline.errors import ModelError
from ridgeline.serving.models import copying
from ridgeline.serving.models.store import ModelStore


@pytest.fixture
def store(root):
    return ModelStore(root)


def test_a_folder_becomes_a_version_that_an_engine_can_load(store, tmp_path):
    version = store.add(str(folder(tmp_path / "m")), engine={"dtype": "int8"}, name="chat:v1")
    path = store.resolve("chat:v1")
    names = {"config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"}
    assert {one.name for one in path.iterdir()} == names
    assert (path / "model.safetensors").read_bytes() == safetensors()
    assert store.resolve(version.id) == store.resolve(version.digest[:8]) == path
    assert store.find("store:chat:v1").engine == {"dtype": "int8"}
    assert {one.stat().st_mode & 0o777 for one in path.iterdir()} == {0o444}


def test_a_gguf_is_one_file_whatever_it_was_called(store, tmp_path):
    one = store.add(str(gguf(tmp_path / "a.gguf")))
    other = store.add(str(gguf(tmp_path / "elsewhere" / "b.gguf")))
    assert one == other
    assert store.resolve(one.id).is_file()
    assert store.resolve(one.id).suffix == ".gguf"


def test_adding_twice_copies_nothing(store, root, tmp_path, monkeypatch):
    source = folder(tmp_path / "m")
    first = store.add(str(source), name="a")
    inodes = {one.stat().st_ino for one in (root / "blobs").iterdir()}

    def no_copy(*_):
        pytest.fail("copied again")

    monkeypatch.setattr(copying, "_write", no_copy)
    assert store.add(str(source), name="b") == first
    assert {one.stat().st_ino for one in (root / "blobs").iterdir()} == inodes
    (only,) = store.versions()
    assert only.names == ("a", "b")


def test_engine_arguments_are_part_of_the_version_and_share_its_bytes(store, root, tmp_path):
    source = str(folder(tmp_path / "m"))
    one, two = store.add(source), store.add(source, engine={"dtype": "int8"})
    assert one.id != two.id
    assert len(blobs(root)) == len(one.files)
    store.remove(one.id)
    assert store.resolve(two.id).is_dir()
    assert len(blobs(root)) == len(two.files)


@pytest.mark.proves("S195")
def test_the_template_is_part_of_the_version(store, tmp_path):
    one = store.add(str(folder(tmp_path / "a")))
    assert store.add(str(folder(tmp_path / "b", template="{{ other }}"))).id != one.id


def test_a_later_write_to_the_source_changes_nothing(store, tmp_path):
    source = gguf(tmp_path / "m.gguf", "old")
    version = store.add(str(source))
    with source.open("r+b") as file:
        file.write(b"GGUFnew")
    assert store.resolve(version.id).read_bytes() == b"GGUFold"
    assert store.verify() == ([version.digest], [])


def test_hidden_and_skipped_files_are_left_out(store, tmp_path):
    source = folder(tmp_path / "m")
    (source / ".cache").mkdir()
    (source / ".cache" / "x").write_text("x")
    (source / "original").mkdir()
    (source / "original" / "big.bin").write_text("x")
    version = store.add(str(source), skip=["original/*"])
    assert len(version.files) == 4


def test_names_move_and_ids_do_not(store, tmp_path):
    one = store.add(str(gguf(tmp_path / "1.gguf", "1")), name="chat")
    two = store.add(str(gguf(tmp_path / "2.gguf", "2")), name="chat")
    assert store.find("chat") == two
    store.name(one.digest[:10], "chat")
    assert store.find("chat") == one
    assert store.find(two.id) == two


@pytest.mark.parametrize(
    "name", ["", "a b", "../x", "/x", "store:x", "sha256:x", "x:", "deadbeef", "a" * 300]
)
def test_a_name_that_would_not_do_is_refused_before_anything_is_copied(store, root, tmp_path, name):
    with pytest.raises(ModelError, match="is no name"):
        store.add(str(gguf(tmp_path / "m.gguf")), name=name)
    assert not root.exists()


def test_what_is_not_there_is_said_with_the_nearest_name(store, tmp_path):
    store.add(str(gguf(tmp_path / "m.gguf")), name="chat")
    with pytest.raises(ModelError, match="no version 'chut'") as told:
        store.resolve("chut")
    assert "chat (nearest)" in told.value.remedy
    with pytest.raises(ModelError, match="8 to 64 digits"):
        store.find("sha256:12")
    with pytest.raises(ModelError, match="there is no version"):
        store.find("sha256:12345678")


def test_a_beginning_that_several_ids_have_is_refused(store, root):
    for digest in ("12345678" + "0" * 56, "12345678" + "1" * 56):
        (root / "versions" / digest).mkdir(parents=True)
    with pytest.raises(ModelError, match="several versions begin so"):
        store.find("12345678")


# What is torn.


def test_a_source_that_is_torn_becomes_no_version(store, root, tmp_path):
    source = folder(tmp_path / "m")
    (source / "model.safetensors").write_bytes(safetensors()[:-1])
    with pytest.raises(ModelError, match="torn weights"):
        store.add(str(source))
    assert store.versions() == []
    assert leftovers(root) == []
    assert blobs(root) == set()


def test_a_source_that_changes_while_it_is_copied_becomes_no_version(store, root, tmp_path):
    """One file is copied, and then another state of it is there: the versions would be mixed."""
    source = folder(tmp_path / "m")

    def change(done, total):
        if done == total:
            (source / "tokenizer.json").write_text("[]")

    with pytest.raises(ModelError, match="changed while it was copied"):
        store.add(str(source), progress=change)
    assert (store.versions(), leftovers(root), blobs(root)) == ([], [], set())


def test_a_torn_file_in_the_store_is_copied_again_before_it_is_loaded(store, tmp_path):
    version = store.add(str(gguf(tmp_path / "m.gguf")))
    path = store.resolve(version.id)
    path.chmod(0o644)
    os.truncate(path, 3)
    assert store.resolve(version.id).read_bytes() == b"GGUFweights"
    assert store.verify()[1] == []


def test_verify_says_which_file_is_bad_and_repair_copies_only_that(store, tmp_path, monkeypatch):
    source = folder(tmp_path / "m")
    one, two = store.add(str(source)), store.add(str(source), engine={"threads": 2})
    file = store.resolve(one.id) / "model.safetensors"
    file.chmod(0o644)
    with file.open("r+b") as opened:
        opened.seek(-1, os.SEEK_END)
        opened.write(b"x")
    read, faults = store.verify()
    assert set(read) == {one.digest, two.digest}
    assert {(fault.digest, fault.path, fault.problem) for fault in faults} == {
        (one.digest, "model.safetensors", "its content has changed"),
        (two.digest, "model.safetensors", "its content has changed"),
    }
    written, write = [], copying._write
    monkeypatch.setattr(copying, "_write", lambda *told: written.append(1) or write(*told))
    moved = source.rename(tmp_path / "away")
    with pytest.raises(ModelError, match="neither a packaged model"):
        store.repair(faults)
    assert file.exists()  # better than nothing
    moved.rename(source)
    store.repair(faults)
    assert written == [1]
    assert store.verify()[1] == []


def test_a_manifest_that_was_edited_is_never_loaded_and_can_be_removed(store, root, tmp_path):
    version = store.add(str(gguf(tmp_path / "m.gguf")), name="chat")
    manifest = root / "versions" / version.digest / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"engine": {}', '"engine": {"a": 1}'))
    with pytest.raises(ModelError, match="is not what it was") as told:
        store.resolve("chat")
    assert store.verify()[1][0].path == "manifest.json"
    assert f"models rm sha256:{version.digest[:12]}" in told.value.remedy
    store.remove(version.digest[:12])
    assert (store.versions(), blobs(root)) == ([], set())


# Removing.


def test_a_name_goes_before_its_version(store, root, tmp_path):
    version = store.add(str(gguf(tmp_path / "m.gguf")), name="a")
    store.name("a", "b")
    gone = store.remove("a")
    assert (gone.is_gone, gone.freed_bytes) == (False, 0)
    assert store.find("b") == version
    gone = store.remove("b")
    assert (gone.is_gone, gone.freed_bytes) == (True, version.bytes)
    assert (store.versions(), blobs(root), leftovers(root)) == ([], set(), [])
    assert list((root / "locks").iterdir()) == []


def test_what_is_pinned_is_not_removed(store, tmp_path):
    version = store.add(str(gguf(tmp_path / "m.gguf")), name="a", pin=True)
    with pytest.raises(ModelError, match="is pinned") as told:
        store.remove(version.id)
    assert told.value.remedy == f"ridgeline models unpin sha256:{version.digest[:12]}"
    store.pin("a", is_pinned=False)
    assert store.remove("a").is_gone


def test_what_is_in_use_is_not_removed(store, tmp_path):
    store.add(str(gguf(tmp_path / "m.gguf")), name="a")
    with store.in_use("a") as path:
        with pytest.raises(ModelError, match="is in use") as told:
            store.remove("a")
        assert "stop the replicas" in told.value.remedy
        assert path.is_file()
        assert store.versions()[0].is_used
        assert store.find("a")  # its name is still there
    assert store.remove("a").is_gone


# The limit.


def used_in_turn(store, tmp_path, count, size=100):
    found = []
    for number in range(count):
        source = gguf(tmp_path / f"{number}.gguf", str(number) * (size - 4))
        found.append(store.add(str(source), name=f"m{number}"))
        os.utime(store._at.use_lock(found[-1].digest), ns=(number, number))
    return found


def here(store):
    return {one.names[0] for one in store.versions() if one.is_here}


def test_what_was_used_longest_ago_leaves_first_and_comes_back_when_it_is_used(store, tmp_path):
    used_in_turn(store, tmp_path, 3)
    store.limit("300B")
    store.resolve("m0")
    store.add(str(gguf(tmp_path / "3.gguf", "3" * 96)), name="m3")
    assert here(store) == {"m0", "m2", "m3"}
    assert store.resolve("m1").read_bytes() == b"GGUF" + b"1" * 96
    assert here(store) == {"m0", "m1", "m3"}
    assert store.bytes() == 300


def test_the_limit_holds_while_a_copy_comes_in_too(store, tmp_path):
    used_in_turn(store, tmp_path, 3)
    store.limit("300B")
    seen = []
    source = gguf(tmp_path / "3.gguf", "3" * 196)
    store.add(str(source), name="m3", progress=lambda *_: seen.append(store.bytes()))
    assert seen == [100]  # and 200 are on their way
    assert here(store) == {"m2", "m3"}


def test_pinned_and_used_versions_never_leave(store, tmp_path):
    used_in_turn(store, tmp_path, 3)
    store.pin("m0")
    with store.in_use("m1"):
        store.limit("200B")
        assert here(store) == {"m0", "m1"}
        with pytest.raises(ModelError, match=r"limit is too small.*pinned.*in use") as told:
            store.add(str(gguf(tmp_path / "3.gguf", "3" * 96)), name="m3")
        assert "models rm" in told.value.remedy
        with pytest.raises(ModelError, match="limit is too small"):
            store.limit("100B")
    assert here(store) == {"m0", "m1"}
    assert store.limit_bytes == 200


def test_a_version_that_left_comes_back_only_as_it_was(store, tmp_path):
    used_in_turn(store, tmp_path, 2)
    store.limit("100B")
    gguf(tmp_path / "0.gguf", "x" * 96)
    with pytest.raises(ModelError, match="has become another file"):
        store.resolve("m0")
    (tmp_path / "0.gguf").unlink()
    with pytest.raises(ModelError, match="neither a packaged model nor a file"):
        store.resolve("m0")
    # From elsewhere it is the same version, and remembers the new place.
    moved = gguf(tmp_path / "moved.gguf", "0" * 96)
    store.add(str(moved))
    assert store.resolve("m0").read_bytes() == moved.read_bytes()
    assert store.find("m0").source == str(moved)


def test_a_limit_that_is_no_size_is_said(store, root):
    with pytest.raises(ModelError, match="is not a size"):
        store.limit("much")
    store.limit("1GB")
    (root / "settings.json").write_text('{"limit": "much"}')
    with pytest.raises(ModelError, match="says no limit"):
        _ = store.limit_bytes


# The disk.


def test_a_full_disk_in_the_middle_leaves_nothing(store, root, tmp_path, monkeypatch):
    kept = store.add(str(folder(tmp_path / "kept")), name="kept")
    before = blobs(root)
    write, written = os.write, []

    def full(handle, data):
        if len(written) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(write(handle, data))
        return written[-1]

    monkeypatch.setattr(copying.os, "write", full)
    with pytest.raises(ModelError, match="the disk is full") as told:
        store.add(str(folder(tmp_path / "new", size=100, fill=1, template="new")), name="kept")
    assert told.value.where == str(root)
    assert "models rm" in told.value.remedy
    assert blobs(root) == before
    assert leftovers(root) == []
    assert store.find("kept") == kept


@pytest.mark.parametrize("call", ["link", "rename", "fsync", "replace"])
@pytest.mark.parametrize("at", range(8))
def test_a_disk_that_fails_anywhere_leaves_a_store_that_is_whole(
    root, tmp_path, monkeypatch, call, at
):
    """No torn version, no lost blob, nothing left, and the next one succeeds."""
    store = ModelStore(root)
    store.add(str(folder(tmp_path / "kept")), name="kept")
    true, calls = getattr(os, call), []

    def failing(*arguments, **more):
        calls.append(call)
        if len(calls) == at + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return true(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with suppress(ModelError):  # fewer calls than that: it succeeds
            store.add(str(folder(tmp_path / "new", fill=1)), name="new")
    assert store.verify()[1] == []
    assert leftovers(root) == []
    assert_whole(store, root)
    store.add(str(folder(tmp_path / "new", fill=1)), name="new")
    assert store.resolve("new").is_dir()


def test_a_copy_that_cannot_fit_the_disk_is_not_begun(store, root, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ModelError, match="11 bytes are needed, 10 are free"):
        store.add(str(gguf(tmp_path / "m.gguf")))


# At once.


def test_threads_that_add_the_same_at_once_get_the_same(store, root, tmp_path):
    source = str(folder(tmp_path / "m", size=1 << 20))
    found, start = [], threading.Barrier(4)

    def add():
        start.wait()
        found.append(store.add(source))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len({version.id for version in found}) == 1
    assert len(found) == 4
    assert_whole(store, root)


def assert_whole(store, root):
    """Every version that is here has all its blobs, and no blob is without a version."""
    versions = [one.version for one in store.versions() if one.is_here]
    assert blobs(root) == {blob for version in versions for blob in version.blobs}
    for version in versions:
        for file in version.files:
            place = store._at.files(version.digest) / file.path
            assert place.samefile(root / "blobs" / file.sha256)


STEP = st.one_of(
    st.tuples(st.just("add"), st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True),
              st.integers(0, 1)),
    st.tuples(st.just("rm"), st.integers(0, 7)),
    st.tuples(st.just("use"), st.integers(0, 7)),
    st.tuples(st.just("pin"), st.integers(0, 7), st.booleans()),
    st.tuples(st.just("limit"), st.sampled_from([None, 20, 45, 70])),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, max_size=12))
def test_no_sequence_loses_a_blob_that_a_version_needs_or_keeps_one_that_none_needs(
    tmp_path_factory, steps
):
    root = tmp_path_factory.mktemp("store")
    store = ModelStore(root / "store")
    for number, step in enumerate(steps):
        known = store.versions()
        try:
            match step:
                case "add", parts, threads:
                    source = root / f"{number}"
                    source.mkdir()
                    (source / "config.json").write_text("{}")
                    for part in parts:
                        (source / f"{part}.txt").write_text(f"{part}" * (10 + part))
                    store.add(str(source), engine={"threads": threads})
                case "rm", which if known:
                    store.remove(known[which % len(known)].version.id)
                case "use", which if known:
                    store.resolve(known[which % len(known)].version.id)
                case "pin", which, is_pinned if known:
                    store.pin(known[which % len(known)].version.id, is_pinned=is_pinned)
                case "limit", size:
                    store.limit(None if size is None else f"{size}B")
        except ModelError:
            pass  # refused: and then nothing has changed
        assert_whole(store, root / "store")
        limit = store.limit_bytes
        assert limit is None or store.bytes() <= limit
        assert leftovers(root / "store") == []
