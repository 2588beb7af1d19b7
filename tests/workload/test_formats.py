"""Layouts: a row of each, and what is done with it."""

import pytest
from trace_files import jsonl, mooncake, written

from ridgeline.errors import SpecError
from ridgeline.workload import Request, read_trace
from ridgeline.workload.formats import FORMATS, format_of

ROWS = {
    "Azure": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n",
        Request(0.0, 2162, 5),
    ),
    "BurstGPT": (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        "Log Type\n5,s9,1.5,ChatGPT,472,18,490,Conversation log\n",
        Request(0.0, 472, 18, session="s9"),
    ),
    "Vidur": (
        "arrived_at,num_prefill_tokens,num_decode_tokens\n4.31,396,109\n",
        Request(0.0, 396, 109),
    ),
    "Vidur replay": (
        "Date,Time,PromptTokenCount,CompletionTokenCount\n2024-01-01,7.5,20,10\n",
        Request(0.0, 20, 10),
    ),
    "lengths": (
        "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.8\n",
        Request(0.0, 3772, 54),
    ),
    "Qwen-Bailian": (
        '{"chat_id": 7, "parent_chat_id": -1, "timestamp": 61.1, "input_length": 40, '
        '"output_length": 9, "type": "text", "turn": 1, "hash_ids": [91, 92, 93]}\n',
        Request(0.0, 40, 9, (0, 1, 2), session="7"),
    ),
    "LLMServingSim": (
        '{"timestamp_ms": 46.9, "input_length": 33, "output_length": 531, "hash_ids": [0, 1]}\n',
        Request(0.0, 33, 531, (0, 1)),
    ),
    "Mooncake": (
        '{"timestamp": 0, "input_length": 900, "output_length": 5, "hash_ids": [0, 1], '
        '"session_id": "a"}\n',
        Request(0.0, 900, 5, (0, 1), session="a"),
    ),
    "ShareGPT": (
        '[{"id": "QWJ", "conversations": [{"from": "human", "value": "Say it in short."}, '
        '{"from": "gpt", "value": "Very well."}]}]',
        Request(0.0, 4, 2, session="QWJ"),
    ),
    "Ridgeline events": (
        '{"event": "log", "message": "hello"}\n{"event": "request", "at_unix_s": 1.5, "tenant": '
        '"search", "model": "chat", "session": "", "input_tokens": 130, "output_tokens": 7, '
        '"prefix": "00000000000000ff"}\n',
        Request(0.0, 130, 7, (255,), tenant="search", model="chat"),
    ),
}


@pytest.mark.parametrize("name", [one.name for one in FORMATS])
def test_a_row_of_each_layout_is_told_by_its_fields_and_read(tmp_path, name):
    text, request = ROWS[name]
    trace = read_trace(written(tmp_path / "whatever", text))
    assert trace.format == name
    assert trace.requests == (request,)
    assert trace.timed is (name not in ("lengths", "ShareGPT"))


def test_a_file_of_no_known_layout_is_told_what_was_seen_and_what_is_known():
    with pytest.raises(SpecError) as error:
        format_of({"when": 1, "size": 2}, "trace.csv, line 2")
    assert "its fields are when, size" in error.value.problem
    assert all(one.name in error.value.remedy for one in FORMATS)


def test_blocks_hashed_alone_are_chained_so_that_equal_ids_mean_equal_prefixes(tmp_path):
    rows = [
        {"chat_id": 1, "timestamp": at, "input_length": 48, "output_length": 5, "hash_ids": blocks}
        for at, blocks in ((0.0, [7, 8]), (0.1, [9, 8]), (0.2, [7, 8, 9]), (0.3, [5, 5]))
    ]
    first, second, third, twice = read_trace(written(tmp_path / "q", jsonl(*rows))).requests
    assert third.blocks[:2] == first.blocks
    assert second.blocks[1] != first.blocks[1]
    assert len(set(twice.blocks)) == 2


def test_turns_of_a_chat_have_the_session_of_its_first(tmp_path):
    row = {"input_length": 48, "output_length": 5, "hash_ids": [1]}
    chain = [(1, -1), (2, 1), (3, -1), (4, 2)]
    rows = [
        {"chat_id": chat, "parent_chat_id": parent, "timestamp": float(at), **row}
        for at, (chat, parent) in enumerate(chain)
    ]
    sessions = [one.session for one in read_trace(written(tmp_path / "q", jsonl(*rows))).requests]
    assert sessions == ["1", "1", "3", "1"]


@pytest.mark.parametrize("ids", [[1, 1], [-1], [1 << 64], ["a"], [1.5], [True], "ab", None, 7])
def test_block_ids_that_cannot_be_prefixes_are_refused(tmp_path, ids):
    file = written(tmp_path / "m", jsonl(mooncake(0, [1]), mooncake(1, ids)))
    with pytest.raises(SpecError, match="line 2: cannot be read as Mooncake"):
        read_trace(file)
