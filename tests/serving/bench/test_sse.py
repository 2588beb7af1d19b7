import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.bench.sse import Stream


def event(**said) -> bytes:
    return b"data: " + json.dumps(said).encode() + b"\n\n"


def chat(**delta) -> bytes:
    return event(choices=[{"index": 0, "delta": delta}])


WHOLE = (
    chat(role="assistant", content="")
    + b": keep-alive\n\nevent: message\n"
    + chat(content="Par")
    + chat(reasoning_content="hm")
    + chat(tool_calls=[{"index": 0}])
    + event(choices=[{"delta": {"content": "is"}, "finish_reason": "stop"}])
    + event(choices=[], usage={"prompt_tokens": 9, "completion_tokens": 4})
    + b"data: [DONE]\n\n"
)


def test_pieces_with_content_are_told_from_the_rest():
    pieces = list(Stream().feed(WHOLE))
    assert [piece.content for piece in pieces] == [False, True, True, True, True, False, False]
    assert [piece.finished for piece in pieces] == [False] * 4 + [True, False, False]
    assert pieces[-2].usage.completion_tokens == 4
    assert pieces[-1].done


@given(st.lists(st.integers(0, len(WHOLE))))
def test_it_does_not_matter_where_the_network_cuts(cuts):
    stream = Stream()
    edges = sorted({0, *cuts, len(WHOLE)})
    pieces = [piece for begin, end in pairwise(edges) for piece in stream.feed(WHOLE[begin:end])]
    assert pieces == list(Stream().feed(WHOLE))


def test_carriage_returns_and_missing_blanks_are_accepted():
    data = WHOLE.replace(b"\n", b"\r\n").replace(b"data: ", b"data:")
    assert list(Stream().feed(data)) == list(Stream().feed(WHOLE))


def test_completions_carry_text():
    assert next(Stream().feed(event(choices=[{"text": " a"}]))).content
    assert not next(Stream().feed(event(choices=[{"text": ""}]))).content


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (event(error={"message": "out of memory"}), "out of memory"),
        (event(error="plain"), "plain"),
        (b"data: {nonsense\n\n", "not a chunk"),
        (event(choices=5), "not a chunk"),
    ],
)
def test_errors_in_a_stream_are_seen(data, said):
    assert said in next(Stream().feed(data)).error
