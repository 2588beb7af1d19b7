"""Reading traces: notes, limits, and whatever a file may hold."""

import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_files import AZURE, jsonl, mooncake, written

from ridgeline.errors import SpecError
from ridgeline.workload import Request, read_trace
from ridgeline.workload.formats import FORMATS
from ridgeline.workload.numbers import MOST_TOKENS


@pytest.mark.parametrize("name", ["azure.csv", "azure.csv.gz", "azure.csv.xz"])
def test_rows_are_read_from_plain_and_packed_files(tmp_path, name):
    trace = read_trace(written(tmp_path / name, AZURE))
    assert [(r.prompt_tokens, r.output_tokens) for r in trace.requests] == [(374, 44), (396, 109)]
    assert [r.at_s for r in trace.requests] == pytest.approx([0.0, 4.314579], abs=2e-6)
    assert trace.notes == ("1 rows without prompt or output left out",)


def test_speed_and_limit_shorten_a_trace(tmp_path):
    trace = read_trace(written(tmp_path / "azure.csv", AZURE), speed=2.0, limit=2)
    assert [r.at_s for r in trace.requests] == pytest.approx([0.0, 4.314579 / 2], abs=2e-6)
    assert trace.notes == ()


def test_requests_of_one_coarse_tick_are_spread_over_it_and_told(tmp_path):
    rows = [mooncake(at_ms, [0, at_ms + 1]) for at_ms in (0, 0, 0, 3000, 9000, 9000)]
    trace = read_trace(written(tmp_path / "m.jsonl", jsonl(*rows)))
    times = [one.at_s for one in trace.requests]
    assert times[0] == 0.0
    assert times == sorted(times)
    assert len(set(times)) == 6
    assert times[-1] < 12
    assert trace.block_tokens == 512
    assert "coarse clock" in trace.notes[0]


def test_rows_out_of_order_are_sorted_and_told(tmp_path):
    rows = [mooncake(at_ms, [at_ms]) for at_ms in (500, 20, 700)]
    trace = read_trace(written(tmp_path / "m", jsonl(*rows)))
    assert [one.blocks[0] for one in trace.requests] == [20, 500, 700]
    assert trace.notes == ("rows were not in order of time, and were sorted",)


def test_lengths_without_arrivals_say_so(shared):
    trace = read_trace(shared / "data/traces/arxiv_summarization_lengths.csv.gz", limit=10)
    assert not trace.timed
    assert trace.requests[0] == Request(0.0, 3772, 54)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("empty.csv", "", "is empty"),
        ("header.csv", AZURE.splitlines()[0], "is empty, or holds no requests"),
        ("other.csv", "a,b\n1,2\n", "line 1: has no known layout; its fields are a, b"),
        ("text.md", "# A text\nand more, of it\n", "line 1: has no known layout"),
        ("torn.csv", AZURE + "yesterday,1,2\n", "line 5: cannot be read as Azure"),
        ("torn.jsonl", "{}\nnonsense\n", "its fields are none"),
        ("none.csv", "num_prefill_tokens,num_decode_tokens\n0,0\n", "holds no requests"),
        ("nan.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\nnan,1,1\n", "is no time"),
        ("less.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n1,-1,1\n", "not between"),
        ("huge.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n1,1e15,1\n", "not between"),
        ("half.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n1,1.5,1\n", "whole number"),
    ],
)
def test_files_that_are_no_trace_are_refused_by_name_and_line(tmp_path, name, text, said):
    with pytest.raises(SpecError, match=said):
        read_trace(written(tmp_path / name, text))


def test_missing_and_torn_files_are_refused(tmp_path):
    with pytest.raises(SpecError, match="cannot be read"):
        read_trace(tmp_path / "absent.csv.gz")
    torn = written(tmp_path / "torn.csv.gz", AZURE)
    torn.write_bytes(torn.read_bytes()[:40])
    with pytest.raises(SpecError, match="cannot be read"):
        read_trace(torn)


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.lists(st.integers(), max_size=3), st.just(10**400), st.just("2024-05-10 00:00:00"),
)  # fmt: skip
fields = sorted({field for one in FORMATS for field in one.fields} | {"session_id", "prefix"})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from([one.fields for one in FORMATS]),
    st.lists(st.dictionaries(st.sampled_from(fields), anything), min_size=1, max_size=5),
    st.sampled_from([1.0, 0.001, 1e6]),
)
def test_whatever_rows_hold_a_trace_comes_out_whole_or_a_spec_error(tmp_path, known, rows, speed):
    rows = [{**dict.fromkeys(known, 1), **row} for row in rows]
    path = written(tmp_path / "any.jsonl", jsonl(*rows))
    try:
        trace = read_trace(path, speed=speed)
    except SpecError:
        return
    times = [one.at_s for one in trace.requests]
    assert times[0] == 0
    assert times == sorted(times)
    for one in trace.requests:
        assert 0 < one.prompt_tokens <= MOST_TOKENS
        assert 0 < one.output_tokens <= MOST_TOKENS
        assert len(set(one.blocks)) == len(one.blocks)
        assert all(0 <= block < 1 << 64 for block in one.blocks)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_good_file_with_some_bytes_changed_is_read_or_refused(tmp_path, data):
    text = data.draw(st.sampled_from([AZURE, jsonl(mooncake(0, [1, 2]), mooncake(9, [1]))]))
    good = bytearray(data.draw(st.sampled_from([text.encode(), gzip.compress(text.encode())])))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "changed"
    path.write_bytes(bytes(good))
    try:
        assert read_trace(path).requests
    except SpecError:
        return


def test_a_list_of_conversations_is_a_trace_without_times(tmp_path):
    talk = [{"from": "human", "value": "x" * 400}, {"from": "gpt", "value": "y" * 40}]
    path = written(tmp_path / "s.json", json.dumps([{"id": "1", "conversations": talk}] * 3))
    trace = read_trace(path)
    assert not trace.timed
    assert [one.prompt_tokens for one in trace.requests] == [100] * 3
    assert "4 bytes of text each" in trace.notes[0]
