"""A version's id: content and engine arguments, and nothing else."""

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.errors import ModelError
from ridgeline.serving.models.manifest import File, Version, check_engine, read_manifest
from ridgeline.serving.models.store import ModelStore

PATHS = st.text("abc/", min_size=1, max_size=6)
FILES = st.lists(
    st.builds(File, PATHS, st.integers(0, 2**50), st.text("0123456789abcdef", max_size=8)),
    unique_by=lambda file: file.path,
    max_size=5,
)
VALUES = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(),
                   st.text(max_size=5), st.lists(st.integers(), max_size=2))  # fmt: skip
ENGINE = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)


@given(FILES, ENGINE, st.randoms(), st.text(), st.integers(0, 2**63))
def test_the_id_knows_no_order_no_source_and_no_time(files, engine, chance, source, added_ns):
    shuffled, arguments = list(files), list(engine.items())
    chance.shuffle(shuffled)
    chance.shuffle(arguments)
    one = Version(tuple(files), engine)
    assert Version(tuple(shuffled), dict(arguments), source, added_ns).id == one.id


@given(FILES, ENGINE, FILES, ENGINE)
def test_another_content_has_another_id(files, engine, others, more):
    one, two = Version(tuple(files), engine), Version(tuple(others), more)
    assert (one.id == two.id) == (one.content() == two.content())


@given(FILES, ENGINE, st.text(), st.integers(0, 2**63))
def test_a_manifest_reads_back_as_it_was_written(files, engine, source, added_ns):
    version = Version(tuple(sorted(files)), engine, source, added_ns)
    read = read_manifest(version.written(), version.digest, where="m")
    assert read == version
    assert (read.source, read.added_ns) == (source, added_ns)


@given(st.dictionaries(st.sampled_from("abcd"), st.binary(max_size=50), min_size=1), st.randoms())
@settings(max_examples=25, deadline=None)
def test_the_id_of_a_folder_depends_on_what_is_in_it_only(tmp_path_factory, contents, chance):
    """Two folders with the same files: other path, other times, written in another order."""
    place = tmp_path_factory.mktemp("id")
    ids = set()
    for name in ("one", "two"):
        folder = place / name
        folder.mkdir()
        order = [*contents.items(), ("config.json", b"{}")]
        chance.shuffle(order)
        for path, data in order:
            (folder / path).write_bytes(data)
            time_ns = random.randrange(10**18)
            os.utime(folder / path, ns=(time_ns, time_ns))
        ids.add(ModelStore(place / f"store-{name}").add(str(folder)).id)
    assert len(ids) == 1


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"files": [[1]]}', "nonsense"])
def test_what_is_no_manifest_is_said(text):
    with pytest.raises(ModelError, match="is not what it was"):
        read_manifest(text, "0" * 64, where="m")


def test_arguments_that_have_no_json_have_no_hash():
    with pytest.raises(ModelError, match="cannot be written as JSON"):
        check_engine({"a": float("nan")})
    with pytest.raises(ModelError, match="cannot be written as JSON"):
        check_engine({"a": object()})


def test_the_id_of_a_known_version_stays_the_same():
    """Whoever changes this number orphans every store there is."""
    version = Version((File("model.gguf", 4, "ab" * 32),), {"dtype": "int8"})
    assert version.digest == "8fa451a693c59071535fe635e9650d02e6d16b047f2db637d508d3216f1c096c"
