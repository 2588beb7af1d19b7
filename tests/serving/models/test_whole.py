"""Files that say themselves how long they are."""

import json
import struct

import pytest
from model_folders import safetensors

from ridgeline.errors import ModelError
from ridgeline.serving.models.whole import check_whole


def problem(folder, path, data):
    (folder / path).write_bytes(data)
    try:
        check_whole(folder, [path], where="here")
    except ModelError as error:
        return error.problem
    return ""


@pytest.mark.parametrize("length", [0, 7, 8, 20, 80, len(safetensors()) - 1])
def test_safetensors_that_end_too_early_are_torn(tmp_path, length):
    assert "torn weights" in problem(tmp_path, "model.safetensors", safetensors()[:length])


def test_whole_safetensors_are_whole(tmp_path):
    assert problem(tmp_path, "model.safetensors", safetensors()) == ""
    assert "torn" in problem(tmp_path, "model.safetensors", safetensors() + b"x")
    assert "torn" in problem(tmp_path, "model.safetensors", struct.pack("<Q", 2) + b"[]")
    empty = struct.pack("<Q", 2) + b"{}"
    assert problem(tmp_path, "model.safetensors", empty) == ""


def test_every_file_that_an_index_names_is_there(tmp_path):
    index = json.dumps({"weight_map": {"w": "1.safetensors", "v": "2.safetensors"}}).encode()
    (tmp_path / "model.safetensors.index.json").write_bytes(index)
    (tmp_path / "1.safetensors").write_bytes(safetensors())
    paths = ["model.safetensors.index.json", "1.safetensors"]
    with pytest.raises(ModelError, match=r"2.safetensors is missing"):
        check_whole(tmp_path, paths, where="here")
    assert "no weight_map" in problem(tmp_path, "model.safetensors.index.json", b"[]")


def test_other_slips(tmp_path):
    assert problem(tmp_path, "model.gguf", b"<html>") == "is no GGUF file"
    assert "is not a JSON object" in problem(tmp_path, "config.json", b"<html>")
    assert problem(tmp_path, "notes.txt", b"") == ""
