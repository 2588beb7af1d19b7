"""The fastest kernels serve unless others are asked for."""

from collections.abc import Iterator

import numpy as np
import pytest
from decoder_parts import parts
from tiny_models import tiny_transformer

from ridgeline.errors import ModelError
from ridgeline.kernels import choose, library
from ridgeline.kernels.portable import PortableDecoder


@pytest.fixture(autouse=True)
def _nothing_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(choose.VARIABLE, raising=False)


def test_the_best_level_serves_and_portable_where_there_is_none(monkeypatch):
    assert choose.kernels() == [*library.levels(), "portable"][0]
    monkeypatch.setattr(choose, "levels", list)
    assert choose.kernels() == "portable"


def test_any_of_this_machines_can_be_asked_for(monkeypatch):
    shape, weights = parts(tiny_transformer("llama"))
    for name in [*library.levels(), "portable"]:
        monkeypatch.setenv(choose.VARIABLE, name)
        decoder = choose.open_decoder(shape, weights, dtype="fp32", cache_dtype="fp32", threads=1)
        assert name in decoder.name
        assert isinstance(decoder, PortableDecoder) == (name == "portable")


def test_another_name_is_refused_with_those_that_are_here(monkeypatch):
    monkeypatch.setenv(choose.VARIABLE, "sse9")
    with pytest.raises(ModelError, match="sse9") as refused:
        choose.kernels()
    assert refused.value.where == choose.VARIABLE
    assert "portable" in refused.value.remedy


@pytest.mark.parametrize("level", ["portable", *library.levels()[:1]])
def test_heads_that_cannot_be_run_are_a_value_error(monkeypatch, level):
    monkeypatch.setenv(choose.VARIABLE, level)
    shape, weights = parts(tiny_transformer("llama"))
    odd = type(shape)(
        **{name: getattr(shape, name) for name in shape.__slots__}
        | {"head_dim": 24, "frequencies": np.ones(12, np.float32)}
    )
    with pytest.raises(ValueError, match="24"):
        choose.open_decoder(odd, weights, dtype="fp32", cache_dtype="fp32", threads=1)


def test_a_library_of_another_version_is_refused(monkeypatch):
    if not library.levels():
        pytest.skip("needs a C++ compiler: no kernels were built")
    monkeypatch.setattr(library, "ABI", library.ABI + 1)
    library.library.cache_clear()
    with pytest.raises(ModelError, match="version") as refused:
        library.library()
    assert refused.value.remedy
    library.library.cache_clear()


@pytest.fixture
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    library.library.cache_clear()
    yield
    library.library.cache_clear()


@pytest.mark.usefixtures("_fresh")
def test_no_library_is_no_error_but_one_that_was_named_is(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "library_path", lambda: tmp_path / "none.so")
    monkeypatch.delenv("RIDGELINE_KERNEL_LIBRARY", raising=False)  # `make sanitize` names one
    assert library.library() is None
    assert library.levels() == []
    library.library.cache_clear()
    monkeypatch.setenv("RIDGELINE_KERNEL_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(ModelError, match="is no file"):
        library.library()


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 0.9])
def test_a_torn_library_is_refused_and_portable_serves_beside_it(monkeypatch, tmp_path, share):
    if not library.levels():
        pytest.skip("needs a C++ compiler: no kernels were built")
    whole = library.library_path().read_bytes()
    torn = tmp_path / "torn.so"
    torn.write_bytes(whole[: int(share * len(whole))])
    monkeypatch.setenv("RIDGELINE_KERNEL_LIBRARY", str(torn))
    library.library.cache_clear()
    with pytest.raises(ModelError, match=r"cut short|cannot be loaded") as refused:
        choose.kernels()
    assert refused.value.remedy
    monkeypatch.setenv(choose.VARIABLE, "portable")
    assert choose.kernels() == "portable"
