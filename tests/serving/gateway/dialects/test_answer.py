"""A chat completion read as blocks, whatever the replica's manners."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_script import call, cut, delta, sse, usage, whole
from ridgeline.serving.gateway.dialects.answer import (
    MOST_EVENT_BYTES,
    Answer,
    ChatStream,
    Closed,
    Failed,
    Grew,
    Kind,
    Opened,
    error_from,
)

PIECES = st.lists(
    st.one_of(
        st.builds(lambda text: {"content": text}, st.text()),
        st.builds(lambda text: {"reasoning_content": text}, st.text()),
        st.builds(call, st.integers(0, 2), st.text(), st.sampled_from(["f", "g"])),
    )
)


@given(PIECES, st.lists(st.integers(0, 10_000)))
def test_blocks_open_grow_and_close_one_after_the_other(said: list, places: list[int]) -> None:
    stream = ChatStream()
    data = sse(*map(delta, said), delta({}, "stop"))
    events = [event for piece in cut(data, places) for event in stream.feed(piece)]
    opened = None
    for event in events:
        match event:
            case Opened(block):
                assert opened is None
                opened = block
            case Grew(block, _, _):
                assert block is opened
            case Closed(block):
                assert block is opened
                opened = None
    assert opened is None
    texts = "".join(one["content"] for one in said if "content" in one)
    blocks = stream.answer.blocks
    assert "".join(block.text for block in blocks if block.kind == Kind.TEXT) == texts
    assert [block.position for block in blocks] == list(range(len(blocks)))


def test_mixed_calls_are_an_error_and_nothing_follows_it() -> None:
    stream = ChatStream()
    mixed = sse(delta(call(0, "{", "f")), delta(call(1, "{", "g")), delta(call(0, "}")))
    events = stream.feed(mixed)
    assert isinstance(events[-1], Failed)
    assert "mixed" in events[-1].error.message
    assert stream.feed(sse(delta({"content": "x"}))) == stream.finish(None) == []


def test_comments_roles_and_other_choices_say_nothing() -> None:
    stream = ChatStream()
    second = delta({"content": "other"})
    second["choices"][0]["index"] = 1
    assert stream.feed(b": ping\n\n" + sse(delta({"role": "assistant"}), second, done=False)) == []


@pytest.mark.parametrize(
    "data",
    [b"data: <html>\n\n", b"data: " + b"x" * MOST_EVENT_BYTES, b'data: {"error": "no"}\n\n'],
    ids=["not JSON", "endless", "error"],
)
def test_what_is_no_answer_is_an_error(data: bytes) -> None:
    (event,) = ChatStream().feed(data)
    assert isinstance(event, Failed)
    assert event.error.status == 502


def test_a_whole_answer() -> None:
    answer = Answer()
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": name, "type": "function", "function": function} for name in "ab"]
    told = whole({"content": "t", "reasoning": "r", "tool_calls": calls}, "tool_calls")
    answer.read(json.dumps(told).encode())
    assert [block.kind for block in answer.blocks] == [
        Kind.REASONING,
        Kind.TEXT,
        Kind.CALL,
        Kind.CALL,
    ]
    assert [block.call_id for block in answer.blocks] == ["", "", "a", "b"]
    assert answer.usage is not None
    assert answer.usage.cached_tokens == usage(7, 3, 2)["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "m", "code": 404}}', "m"),
        (b'{"error": "e"}', "e"),
        (b'{"object": "error", "message": "old vLLM"}', "old vLLM"),
        (b'{"detail": "FastAPI"}', "FastAPI"),
        (b'{"detail": [{"loc": []}]}', "The replica says no more."),
        (b"nginx", "nginx"),
        (b"", "The replica says no more."),
    ],
)
def test_every_shape_of_error_is_read(body: bytes, message: str) -> None:
    assert error_from(400, body).message == message
