"""Rows of files: told by content, bounded, and torn ones refused by line."""

import gzip
import json
import lzma
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_files import AZURE, written

from ridgeline.errors import SpecError
from ridgeline.workload import rows
from ridgeline.workload.rows import as_text, rows_of, unpacked


def read(path: Path) -> list[tuple[str, dict[str, object]]]:
    with unpacked(path, "--trace") as file, as_text(file) as text:
        return list(rows_of(text, path))


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress, lzma.compress])
def test_how_a_file_is_packed_is_seen_in_it_whatever_its_name(tmp_path, pack):
    path = tmp_path / "trace"
    path.write_bytes(pack(AZURE.encode()))
    assert [place for place, _ in read(path)] == ["line 2", "line 3", "line 4"]
    assert read(path)[0][1]["ContextTokens"] == "374"


def test_a_byte_order_mark_blank_lines_and_a_header_again_are_passed_over(tmp_path):
    path = written(tmp_path / "a.csv", "\ufeff\n" + AZURE + "\n" + AZURE)
    assert len(read(path)) == 6
    assert read(path)[3][0] == "line 8"


def test_a_list_of_objects_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_CHUNK_CHARS", 7)
    for indent in (None, 2):
        told = [{"n": n, "text": "] } , {" * n} for n in range(20)]
        path = written(tmp_path / "a.json", json.dumps(told, indent=indent))
        assert read(path) == [(f"row {n + 1}", one) for n, one in enumerate(told)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b,a\n1,2,3\n", "line 1: names the column 'a' twice"),
        ("a,b\n1,2\n3\n", "line 3: has 1 fields of 2"),
        ("a,b\n1,2,3\n", "line 2: has 3 fields of 2"),
        ('a,b\n1,"' + "x" * 200_000 + "\n", "line 2: is not CSV"),
        ('{"a": 1}\nnonsense\n', "line 2: is not a JSON object"),
        ('{"a": 1}\n\n[2]\n', "line 3: is not a JSON object"),
        ('{"a": ' + "[" * 100_000 + "\n", "line 1: is not a JSON object"),
        ('{"a": ' + "9" * 5_000 + "}\n", "line 1: is not a JSON object"),
        ('[{"a": 1}, 2]', "row 2: is not a JSON object"),
        ('[{"a": 1}, {"b": ', "row 2: is torn"),
        ('[{"a": 1}', "row 2: is not|row 2: is torn"),
        ("[" + '{"a":' * 100_000, "row 1: is torn"),
    ],
)
def test_what_is_no_row_is_refused_with_its_line(tmp_path, text, said):
    with pytest.raises(SpecError, match=said):
        read(written(tmp_path / "a", text))


def test_other_packings_and_what_is_no_text_are_refused(tmp_path):
    for data, said in ((b"\x28\xb5\x2f\xfd1234", "packed in a way"), (b"\xff\xfe\x00", "utf-8")):
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(SpecError, match=said):
            read(tmp_path / "a")


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.xz"])
def test_archives_torn_anywhere_are_refused(tmp_path, name):
    whole = written(tmp_path / name, AZURE * 50).read_bytes()
    for size in range(12, len(whole) - 1, 7):
        (tmp_path / name).write_bytes(whole[:size])
        with pytest.raises(SpecError, match=r"cannot be read|is empty|fields"):
            list(read(tmp_path / name))


def test_a_small_file_that_unpacks_to_a_long_line_fills_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "MOST_ROW_CHARS", 1 << 20)
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(64):
            file.write(b" " * (1 << 20))
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    with pytest.raises(SpecError, match="line 1: is longer than"):
        read(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 16 << 20


def test_a_file_of_too_many_lines_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "MOST_ROWS", 100)
    with pytest.raises(SpecError, match="line 101: is over the 100 lines"):
        read(written(tmp_path / "a.gz", "\n" * 10_000))
    with pytest.raises(SpecError, match="row 101: is over the 100 rows"):
        read(written(tmp_path / "a.gz", "[" + "{}," * 10_000 + "{}]"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_rows_or_a_spec_error(tmp_path, data):
    path = tmp_path / "any"
    path.write_bytes(data)
    try:
        found = read(path)
    except SpecError:
        return
    assert all(isinstance(row, dict) for _, row in found)
