"""Where models come from: folders, files, and whatever fsspec reaches."""

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import fsspec
import pytest
from model_folders import folder, gguf, leftovers

from ridgeline.errors import MissingExtraError, ModelError
from ridgeline.serving.models.source import open_source, without_secrets
from ridgeline.serving.models.store import ModelStore


@pytest.fixture
def memory():
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()


def test_one_content_from_anywhere_is_one_version(root, tmp_path, memory):
    source = folder(tmp_path / "m")
    memory.put(str(source), "/bucket/m", recursive=True)
    store = ModelStore(root)
    ids = {store.add(one).id for one in (str(source), f"file://{source}", "memory://bucket/m")}
    assert len(ids) == 1


def test_one_file_of_a_url_is_a_gguf(root, tmp_path, memory):
    memory.put(str(gguf(tmp_path / "m.gguf")), "/bucket/m.gguf")
    store = ModelStore(root)
    version = store.add("memory://bucket/m.gguf")
    assert version.is_file
    assert version.source == "memory://bucket/m.gguf"
    assert version == store.add(str(tmp_path / "m.gguf"))


def test_what_left_comes_back_from_its_url(root, memory):
    memory.pipe("/m.gguf", b"GGUFmemory")
    store = ModelStore(root)
    version = store.add("memory://m.gguf")
    store.limit("1B")
    assert not store.versions()[0].is_here
    store.limit(None)
    assert store.resolve(version.id).read_bytes() == b"GGUFmemory"


def test_a_url_that_ends_too_early_becomes_no_version(root, memory, monkeypatch):
    """The server told another length than it sent."""
    memory.pipe("/m.gguf", b"GGUFmemory")
    true = type(memory).info
    monkeypatch.setattr(
        type(memory), "info", lambda self, path, **more: {**true(self, path, **more), "size": 99}
    )
    with pytest.raises(ModelError, match="has 10 bytes where 99 were told"):
        ModelStore(root).add("memory://m.gguf")
    assert leftovers(root) == []


@pytest.fixture
def web(tmp_path):
    """A web server that knows no ranges, and its address."""
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=tmp_path)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_web_server_that_knows_no_ranges_will_do(root, tmp_path, web):
    source = gguf(tmp_path / "m.gguf", "x" * 20_000_000)
    assert ModelStore(root).add(f"{web}/m.gguf") == ModelStore(root).add(str(source))
    with pytest.raises(ModelError, match="there is nothing of that name"):
        ModelStore(root).add(f"{web}/other.gguf")


def test_nothing_there_is_said_without_a_password(root, memory):
    with pytest.raises(ModelError, match="there is nothing of that name") as told:
        ModelStore(root).add("memory://user:secret@nowhere/m.gguf?token=secret")
    assert "secret" not in str(told.value)
    assert told.value.where == "memory://nowhere/m.gguf"


def test_a_scheme_that_nobody_knows_is_said(root):
    with pytest.raises(ModelError, match="nosuch"):
        ModelStore(root).add("nosuch://x/m.gguf")


def test_errors_of_a_driver_do_not_tell_a_password(root, memory, monkeypatch):
    def angry(*_, **__):
        raise RuntimeError("401 for memory://user:secret@x")

    monkeypatch.setattr(type(memory), "info", angry)
    with pytest.raises(ModelError, match="cannot be read: RuntimeError") as told:
        open_source("memory://user:secret@x/m.gguf").files()
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("s3://bucket/m", "s3://bucket/m"),
        ("https://u:p@host:8/m.gguf?sig=x#y", "https://host:8/m.gguf"),
        ("zip://in.gguf::https://u:p@host/a.zip?t=1", "zip://in.gguf::https://host/a.zip"),
    ],
)
def test_what_is_written_down_holds_no_secret(url, written):
    assert without_secrets(url) == written


def test_without_fsspec_the_extra_is_named(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"\[models\]"):
        ModelStore(root).add("s3://bucket/m")


def test_a_folder_that_is_no_model_is_refused(root, tmp_path):
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(ModelError, match=r"has no config\.json"):
        ModelStore(root).add(str(tmp_path))
    gguf(tmp_path / "m.gguf")
    with pytest.raises(ModelError, match=r"has no config\.json") as told:
        ModelStore(root).add(str(tmp_path))
    assert told.value.remedy.endswith("/m.gguf")


def test_links_to_files_are_followed_and_links_to_folders_refused(root, tmp_path):
    source, blob = folder(tmp_path / "m"), tmp_path / "blob"
    (source / "tokenizer.json").rename(blob)
    (source / "tokenizer.json").symlink_to(blob)  # as the cache of Hugging Face has it
    store = ModelStore(root)
    path = store.resolve(store.add(str(source)).id)
    assert not (path / "tokenizer.json").is_symlink()
    (source / "more").symlink_to(tmp_path)
    with pytest.raises(ModelError, match="is a link to a folder"):
        store.add(str(source))
    (source / "more").unlink()
    blob.unlink()
    with pytest.raises(ModelError, match="there is nothing of that name"):
        store.add(str(source))
