"""What a spec's `model` means, for those who start replicas."""

import pytest
from model_folders import folder, gguf

from ridgeline.errors import ModelError
from ridgeline.serving.models.store import ModelStore
from ridgeline.serving.models.weights import models_home, settled, size, stored, told, weights
from ridgeline.serving.spec import ModelSpec


def spec(model, **engine):
    return ModelSpec.model_validate({"name": "chat", "model": model, "engine": engine})


def test_a_replica_is_told_an_id_so_that_a_name_may_move(root, tmp_path):
    store = ModelStore(root)
    one = store.add(str(gguf(tmp_path / "1.gguf", "1")), name="chat")
    assert told("store:chat") == one.id
    store.add(str(gguf(tmp_path / "2.gguf", "2")), name="chat")
    with weights(one.id) as path:
        assert path.read_bytes() == b"GGUF1"


def test_what_is_loaded_cannot_be_removed(root, tmp_path):
    ModelStore(root).add(str(gguf(tmp_path / "1.gguf")), name="chat")
    with weights("store:chat"), pytest.raises(ModelError, match="is in use"):
        ModelStore(root).remove("chat")


def test_paths_mean_what_they_meant(root, tmp_path):
    path = gguf(tmp_path / "1.gguf")
    with weights(str(path)) as found:
        assert found == path
    assert told(str(path)) == str(path)
    assert stored(str(path)) is None
    assert size(str(path)) == (11, True)
    assert settled(spec(str(path))) == spec(str(path))
    assert not root.exists()


def test_the_size_is_known_without_a_copy(root, tmp_path):
    store = ModelStore(root)
    version = store.add(str(folder(tmp_path / "m")), name="chat")
    store.limit("1B")
    assert size("store:chat") == (version.bytes, False)
    assert not store.versions()[0].is_here


def test_a_versions_engine_settings_hold_where_the_spec_says_nothing(root, tmp_path):
    engine = {"dtype": "int8", "max_seqs": 7}
    version = ModelStore(root).add(str(gguf(tmp_path / "m.gguf")), engine=engine, name="chat")
    found = settled(spec("store:chat", max_seqs=9))
    assert found.model == version.id
    assert (found.engine.dtype, found.engine.max_seqs, found.engine.threads) == ("int8", 9, 0)


def test_settings_that_do_not_suit_are_said(root, tmp_path):
    ModelStore(root).add(str(gguf(tmp_path / "m.gguf")), engine={"dtyp": "int8"}, name="chat")
    with pytest.raises(ModelError, match="dtyp"):
        settled(spec("store:chat"))


def test_where_the_store_is(monkeypatch, tmp_path):
    monkeypatch.delenv("RIDGELINE_MODELS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert models_home() == tmp_path / "ridgeline" / "models"
    monkeypatch.setenv("RIDGELINE_MODELS", str(tmp_path / "m"))
    assert models_home() == tmp_path / "m"
