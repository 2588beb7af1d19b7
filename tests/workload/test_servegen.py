"""ServeGen's clients: drawn from what the files say, and refused where they say nonsense."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from ridgeline.errors import SpecError
from ridgeline.workload import read_trace
from ridgeline.workload.statistics import statistics

WINDOWS = "0,2.0,0.5,Gamma,4.0,0.125\n600,0,0,,0,0\n1200,8.0,0.7,Weibull,1.4,0.137\n"
SIZES = {
    "0": {"input_tokens": "{100: 0.5, 200: 0.5}", "output_tokens": "{10: 1.0}"},
    "600": {"input_tokens": "{}", "output_tokens": "{}"},
    "1200": {"text_tokens": "{50: 1}", "image_tokens": "{1000: 1}", "output_tokens": "{7: 1}",
             "audio_tokens": "{0: 1}"},
}  # fmt: skip


def folder(path: Path, windows: str = WINDOWS, sizes: object = SIZES) -> Path:
    """One client's files."""
    path.mkdir(exist_ok=True)
    (path / "chunk-3-trace.csv").write_text(windows)
    text = sizes if isinstance(sizes, str) else json.dumps(sizes)
    (path / "chunk-3-dataset.json").write_text(text)
    return path


def packed(path: Path, data: Path) -> Path:
    """The folder as an archive."""
    with tarfile.open(path, "w:xz") as archive:
        archive.add(data, "data/reason/some")
    return path


def test_a_client_asks_as_often_and_as_much_as_his_files_say(tmp_path):
    trace = read_trace(folder(tmp_path / "client"))
    at_s = np.array([one.at_s for one in trace.requests])
    early, late = at_s < 700, at_s >= 700
    assert early.sum() == pytest.approx(1200, rel=0.05)
    assert late.sum() == pytest.approx(4800, rel=0.05)
    gaps = np.diff(at_s[early])
    assert gaps.std() / gaps.mean() == pytest.approx(0.5, rel=0.1)
    sizes = {(one.prompt_tokens, one.output_tokens) for one in trace.requests}
    assert sizes == {(100, 10), (200, 10), (1050, 7)}
    assert {one.tenant for one in trace.requests} == {"client-3"}
    assert "tokens of image count" in trace.notes[1]
    assert "audio" not in trace.notes[1]


def test_a_folder_and_its_archive_are_the_same_and_a_seed_is_another_draw(tmp_path):
    data = folder(tmp_path / "client")
    archive = packed(tmp_path / "a.tar.xz", data)
    assert read_trace(archive).requests == read_trace(data).requests
    assert read_trace(archive, seed=1).requests != read_trace(data).requests
    assert read_trace(archive, limit=10).requests == read_trace(data).requests[:10]


def test_a_client_that_asks_less_than_once_a_window_still_asks(tmp_path):
    windows = "".join(f"{600 * n},0.0004,1,Gamma,1,1\n" for n in range(1000))
    requests = read_trace(folder(tmp_path / "client", windows)).requests
    assert len(requests) == pytest.approx(240, abs=50)


def test_a_public_day_has_the_rate_published_with_it(shared):
    trace = read_trace(shared / "data/traces/servegen_multimodal_mm-image.tar.xz", limit=200_000)
    told = statistics(trace)
    assert len(told.tenants) <= 35
    assert told.rate is not None
    assert 4.9 < told.rate.per_s < 13.3  # its trough and its peak


@pytest.mark.parametrize(
    ("windows", "sizes", "said"),
    [
        ("0,nan,1,Gamma,1,1\n", SIZES, "trace.csv, line 1: cannot be read as ServeGen"),
        ("0,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", SIZES, "line 2.*not after"),
        ("0,-1,1,Gamma,1,1\n", SIZES, "line 1.*rate -1"),
        ("0,1,1,Pareto,1,1\n", SIZES, "line 1.*Pareto"),
        ("0,1,1,Gamma,0,1\n", SIZES, "line 1.*Gamma, 0"),
        ("0,1,1,Gamma\n", SIZES, "line 1"),
        ("0,1e9,1,Gamma,1,1\n", SIZES, "asks for 600,000,000,000 requests"),
        (WINDOWS, "{", "dataset.json: cannot be read"),
        (WINDOWS, {}, "it has no sizes"),
        (WINDOWS, [1], "dataset.json: cannot be read"),
        (WINDOWS, {"0": {"output_tokens": "{1: 1}"}}, "neither input_tokens nor text_tokens"),
        (WINDOWS, {"0": {"input_tokens": "{-4: 1}", "output_tokens": "{1: 1}"}}, "-4"),
        (WINDOWS, {"0": {"input_tokens": "{4: nan}", "output_tokens": "{1: 1}"}}, "nan"),
        (WINDOWS, {"0": {"input_tokens": "{4: 0}", "output_tokens": "{1: 1}"}}, "not positive"),
        (WINDOWS, {"0": {"input_tokens": "4", "output_tokens": "{1: 1}"}}, "no .tokens: share"),
        ("0,0,0,,0,0\n", SIZES, "ask for nothing"),
    ],
)
def test_nonsense_is_refused_with_its_file(tmp_path, windows, sizes, said):
    with pytest.raises(SpecError, match=said):
        read_trace(folder(tmp_path / "client", windows, sizes))


def test_a_missing_half_an_empty_folder_and_a_torn_archive_are_refused(tmp_path):
    data = folder(tmp_path / "client")
    archive = packed(tmp_path / "a.tar.xz", data)
    (data / "chunk-3-dataset.json").unlink()
    with pytest.raises(SpecError, match=r"chunk-3-dataset.json: is missing"):
        read_trace(data)
    (data / "chunk-3-trace.csv").unlink()
    with pytest.raises(SpecError, match="holds no trace"):
        read_trace(data)
    archive.write_bytes(archive.read_bytes()[:200])
    with pytest.raises(SpecError, match="cannot be read"):
        read_trace(archive)


def test_two_models_in_one_folder_are_not_mixed(tmp_path):
    for name in ("one", "two"):
        folder(tmp_path / name)
    with pytest.raises(SpecError, match="is there twice"):
        read_trace(tmp_path)


def test_an_archive_is_never_written_out_and_large_members_are_refused(tmp_path, monkeypatch):
    file = tmp_path / "a.tar"
    with tarfile.open(file, "w") as archive:
        for name in ("../../evil", "x/chunk-1-trace.csv"):
            member = tarfile.TarInfo(name)
            member.size = 17 << 20
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(SpecError, match=r"chunk-1-trace.csv: is too large"):
        read_trace(file)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.tar"]
