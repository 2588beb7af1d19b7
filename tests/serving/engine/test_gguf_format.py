import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.serving.engine.default_model import SMOLLM2, needs_smollm2
from tests.serving.engine.tiny_models import write_tiny

from ridgeline.errors import ModelError
from ridgeline.serving.engine.gguf_format import read_head
from ridgeline.serving.engine.model_files import open_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("gguf") / "tiny.gguf", "llama-scaled", layout="gguf")


def test_metadata_and_tensor_table_are_those_of_the_gguf_package(tiny: Path) -> None:
    head, reference = read_head(tiny), gguf.GGUFReader(tiny)
    fields = {
        name: field.contents()
        for name, field in reference.fields.items()
        if not name.startswith("GGUF.")
    }
    assert head.metadata == fields
    assert {
        tensor.name: (tuple(map(int, tensor.shape))[::-1], int(tensor.data_offset))
        for tensor in reference.tensors
    } == {tensor.name: (tensor.shape, tensor.offset_bytes) for tensor in head.tensors.values()}
    assert head.size_bytes == tiny.stat().st_size


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "values.gguf", "llama")
    writer.add_uint8("a", 200)
    writer.add_int8("b", -2)
    writer.add_uint16("c", 60_000)
    writer.add_int16("d", -300)
    writer.add_uint64("e", 1 << 60)
    writer.add_int64("f", -(1 << 60))
    writer.add_float64("g", 0.1)
    writer.add_bool("h", True)
    writer.add_array("i", [1.5, -2.5])
    writer.add_array("j", ["x", "ü"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    metadata = read_head(tmp_path / "values.gguf").metadata
    assert [metadata[name] for name in "abcdef"] == [200, -2, 60_000, -300, 1 << 60, -(1 << 60)]
    assert [metadata[name] for name in "ghij"] == [0.1, True, [1.5, -2.5], ["x", "ü"]]


@given(share=st.floats(0, 1, exclude_max=True))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_file_cut_anywhere_is_a_model_error(tiny: Path, tmp_path: Path, share: float) -> None:
    whole = tiny.read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(ModelError):
        open_model(cut).tensors("fp32")


def test_flipped_bytes_are_read_or_refused_but_never_crash(tiny: Path, tmp_path: Path) -> None:
    whole = tiny.read_bytes()
    head_bytes = min(tensor.offset_bytes for tensor in read_head(tiny).tensors.values())
    chance = random.Random(5)
    flipped = tmp_path / "flipped.gguf"
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(3):
            data[chance.randrange(head_bytes)] = chance.randrange(256)
        flipped.write_bytes(data)
        try:
            files = open_model(flipped)
            files.tensors("fp32")
            files.tokenizer.encode("abc")
        except ModelError:
            refused += 1
    assert refused > 30


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"", "not a GGUF"),
        (b"PK\x03\x04" + bytes(60), "not a GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 62, 1 << 62), "torn"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 63), "torn"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 8, 1 << 60), "torn"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 4, 1 << 60), "torn"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 77), "unknown type 77"),
    ],
)
def test_a_foreign_head_is_refused_with_its_reason(tmp_path: Path, head: bytes, says: str) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(head)
    with pytest.raises(ModelError, match=says) as caught:
        read_head(file)
    assert caught.value.remedy
    assert caught.value.where == str(file)


@needs_smollm2
@pytest.mark.slow
def test_a_real_head_is_read_ten_times_faster_than_by_the_package() -> None:
    """The reason why this file exists (decisions/0006); both in the same minute."""
    assert SMOLLM2 is not None
    reference_s, ours_s = _seconds(gguf.GGUFReader), min(_seconds(read_head) for _ in range(3))
    assert ours_s * 10 < reference_s, f"{ours_s:.3f} s against {reference_s:.3f} s"


def _seconds(read: Callable[[Path], object]) -> float:
    start_s = time.process_time()  # other work on the machine does not count
    read(SMOLLM2)
    return time.process_time() - start_s
