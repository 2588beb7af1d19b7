from dataclasses import replace

import pytest

from ridgeline.catalog import packaged
from ridgeline.catalog.packaged import DEFAULT_MODEL, PACKAGED, find_model
from ridgeline.errors import ModelError


def test_every_packaged_model_has_its_origin_and_licence():
    for name, model in PACKAGED.items():
        assert model.name == name
        assert model.source
        assert model.licence
        assert model.install.startswith("pip install ")


def test_a_model_that_is_not_installed_names_the_one_command(monkeypatch):
    absent = replace(PACKAGED[DEFAULT_MODEL], package="no_such_package_here")
    monkeypatch.setitem(packaged.PACKAGED, DEFAULT_MODEL, absent)
    with pytest.raises(ModelError, match="is not installed") as caught:
        find_model(DEFAULT_MODEL)
    assert caught.value.remedy == absent.install


def test_a_package_without_the_file_counts_as_absent():
    assert replace(PACKAGED[DEFAULT_MODEL], package="ridgeline").path() is None


def test_a_path_is_found_and_a_slip_names_what_there_is(tmp_path):
    file = tmp_path / "m.gguf"
    file.touch()
    assert find_model(str(file)) == file.resolve()
    with pytest.raises(ModelError, match="neither a packaged model nor a file") as caught:
        find_model(str(tmp_path / "n.gguf"))
    assert DEFAULT_MODEL in caught.value.remedy
