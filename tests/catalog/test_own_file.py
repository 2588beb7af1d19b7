"""A person's own catalog file: rows in, everything else as it was."""

from pathlib import Path

import pytest

from ridgeline.catalog.own_file import add_row
from ridgeline.errors import CatalogError


def test_rows_of_a_file_are_replaced_by_id_and_the_rest_stays(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    add_row(file, "models", {"id": "a", "layers": 1})
    add_row(file, "step_times", {"id": "b"})
    add_row(file, "models", {"id": "a", "layers": 2})
    assert file.read_text() == "models:\n- id: a\n  layers: 2\nstep_times:\n- id: b\n"


def test_a_file_that_is_no_catalog_is_left_as_it_is(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("- 1\n")
    with pytest.raises(CatalogError, match="not a mapping"):
        add_row(file, "models", {"id": "a"})
    assert file.read_text() == "- 1\n"


def test_a_file_that_cannot_be_written_is_told_and_nothing_is_left_beside_it(tmp_path: Path):
    folder = tmp_path / "taken"
    folder.write_text("a file, not a folder")
    with pytest.raises(CatalogError, match="cannot be"):
        add_row(folder / "mine.yaml", "models", {"id": "a"})
    assert [one.name for one in tmp_path.iterdir()] == ["taken"]


def test_a_folder_that_is_missing_is_not_made_but_told(tmp_path: Path):
    with pytest.raises(CatalogError, match="there is no folder") as caught:
        add_row(tmp_path / "none" / "mine.yaml", "models", {"id": "a"})
    assert caught.value.remedy == f"mkdir -p {tmp_path / 'none'}"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("content", [b"[" * 100_000, b"a: \xff\xfe", b"a: 2026-13-45\n"])
def test_a_file_that_cannot_be_read_is_told_and_left_as_it_is(tmp_path: Path, content: bytes):
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    with pytest.raises(CatalogError, match="cannot be read"):
        add_row(file, "models", {"id": "a"})
    assert file.read_bytes() == content
