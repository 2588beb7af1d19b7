"""The trace that comes with the package is what its maker makes."""

import gzip
from importlib import resources
from pathlib import Path

import pytest

import example_trace
from ridgeline.workload import read_trace
from ridgeline.workload.example import FILE
from ridgeline.workload.statistics import statistics


def test_the_packaged_file_is_what_its_maker_makes_to_the_last_byte():
    data = resources.files("ridgeline.workload").joinpath(FILE).read_bytes()
    assert gzip.decompress(data).decode() == example_trace.example()
    assert len(data) < 150_000


def test_it_has_tenants_sessions_bursts_and_shared_beginnings():
    told = statistics(read_trace(Path("example")))
    assert 2_000 < told.requests < 5_000
    assert set(told.tenants) == {"assistant", "search", "reports"}
    assert told.sessions > 300
    assert told.models == {}, "so that it fits every spec"
    assert told.rate.cv > 1.3
    assert told.reuse.unlimited == pytest.approx(0.82, abs=0.005)
    quarter = sum(told.rate.pieces_per_s[:4]), sum(told.rate.pieces_per_s[10:14])
    assert quarter[1] > 3 * quarter[0], "its rate rises"


def test_a_file_of_that_name_goes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("example").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,5\n")
    assert read_trace(Path("example")).format == "Vidur"
