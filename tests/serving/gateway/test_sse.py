"""A replica's stream, cut into pieces wherever the network likes."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.gateway import sse
from ridgeline.serving.gateway.sse import EventStream, TooLongEventError, guessed_tokens, usage_of


def event(data: object, end: str = "\n\n") -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}{end}".encode()


def said(text: str) -> dict:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
DONE = b"data: [DONE]\n\n"
STREAM = [event(said("")), event(said("Grüße")), b": still here\n\n", event(said("\n\n"))]


def passed(stream: EventStream, *pieces: bytes) -> bytes:
    return b"".join(stream.feed(piece) for piece in pieces)


@given(
    st.lists(st.integers(0, 400), max_size=20), st.booleans(), st.sampled_from(["\n\n", "\r\n\r\n"])
)
def test_however_a_stream_is_cut_the_same_events_pass(cuts, hide, end) -> None:
    whole = b"".join([*STREAM, event(USAGE), DONE]).replace(b"\n\n", end.encode())
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(edges)]
    stream = EventStream(hide_usage=hide)
    expected = whole if not hide else whole.replace(event(USAGE, end), b"")
    assert passed(stream, *pieces) == expected
    assert (stream.contents, stream.ended) == (2, True)
    assert (stream.usage.prompt_tokens, stream.usage.completion_tokens) == (5, 2)


def test_a_null_usage_that_the_client_did_not_ask_for_is_taken_out() -> None:
    told = b'data: {"choices":[{"text":"a,\\"usage\\":null}"}],"usage":null}\n\n'
    kept = b'data: {"choices":[{"text":"a,\\"usage\\":null}"}]}\n\n'
    assert EventStream(hide_usage=True).feed(told) == kept
    assert EventStream(hide_usage=False).feed(told) == told


def test_half_an_event_waits_for_its_other_half() -> None:
    stream = EventStream(hide_usage=False)
    half, rest = event(said("Paris"))[:20], event(said("Paris"))[20:]
    assert stream.feed(half) == b""
    assert stream.feed(rest) == event(said("Paris"))


def test_usage_on_an_event_with_a_choice_passes_even_where_usage_is_hidden() -> None:
    last = {**said("."), "usage": USAGE["usage"]}
    stream = EventStream(hide_usage=True)
    assert passed(stream, event(last)) == event(last)
    assert stream.usage.completion_tokens == 2


@pytest.mark.parametrize(
    ("data", "contents"),
    [
        (said(""), 0),
        (said("x"), 1),
        ({"choices": [{"text": "x"}]}, 1),
        ({"choices": [{"text": ""}]}, 0),
        ({"choices": [{"delta": {"reasoning_content": "hm"}}]}, 1),
        ({"choices": [{"delta": {"content": None, "tool_calls": None}}]}, 0),
        ({"choices": [{"delta": {"tool_calls": [{"index": 0}]}}], "error": None}, 1),
        ({"choices": "of another dialect"}, 0),
        ([1, 2], 0),
    ],
)
def test_only_events_with_text_or_tool_calls_are_counted_and_all_pass(data, contents) -> None:
    stream = EventStream(hide_usage=True)
    assert passed(stream, event(data)) == event(data)
    assert (stream.contents, stream.ended) == (contents, False)


def test_an_error_event_ends_a_stream() -> None:
    stream = EventStream(hide_usage=True)
    stream.feed(event({"error": {"message": "out of memory"}}))
    assert stream.ended
    assert b"out of memory" in stream.error


def test_an_event_without_end_is_not_collected_for_ever(monkeypatch) -> None:
    monkeypatch.setattr(sse, "MOST_EVENT_BYTES", 1000)
    stream = EventStream(hide_usage=True)
    stream.feed(b"data: " + b"x" * 900)
    with pytest.raises(TooLongEventError, match="1,000"):
        stream.feed(b"x" * 900)


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_survived(junk) -> None:
    stream = EventStream(hide_usage=True)
    assert passed(stream, junk, b"\n\n").endswith(b"\n\n") or not stream.feed(b"")
    assert usage_of(junk) is None or isinstance(usage_of(junk), sse.Usage)


def test_the_usage_of_a_whole_answer() -> None:
    body = {"choices": [{"message": {"content": "Paris."}}], "usage": {"completion_tokens": 2}}
    assert usage_of(json.dumps(body).encode()).completion_tokens == 2
    assert usage_of(b'{"choices": []}') is None


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"choices": [{"message": {"content": "eight by"}}, {"message": {"content": "1"}}]}', 3),
        (b'{"choices": [{"text": "four"}]}', 1),
        (b'{"choices": [{"message": {"content": null}}]}', 0),
        (b'{"choices": [{"message": {"content": [{"type": "text"}]}}]}', 0),
        (b'{"choices": 3}', 0),
        (b'{"data": []}', 0),
        (b"[]", 0),
        (b"no", 0),
    ],
)
def test_a_whole_answer_without_usage_is_guessed_by_its_text(body, tokens) -> None:
    assert guessed_tokens(body) == tokens
