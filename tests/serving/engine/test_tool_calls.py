"""Calls found in text, however it is cut into pieces."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.serving.engine.tool_calls import (
    CallPiece,
    ContentPiece,
    Piece,
    ToolCall,
    ToolCallStream,
    parse_tool_calls,
)

NAMES = ("f", "get_weather")
F = '{"name": "f", "arguments": {"a": 1}}'
CALL = ToolCall("f", '{"a": 1}')


def split(pieces_of_text: list[str], names: Any = NAMES) -> tuple[str, list[ToolCall]]:
    """What a client puts together from the pieces; checks their order on the way."""
    stream = ToolCallStream(names)
    pieces: list[Piece] = [piece for text in pieces_of_text for piece in stream.feed(text)]
    pieces += stream.close()
    content, calls = "", []
    for piece in pieces:
        match piece:
            case ContentPiece(text):
                assert text
                content += text
            case CallPiece(index, str(name), arguments):
                assert index == len(calls)
                calls.append(ToolCall(name, arguments))
            case CallPiece(index, None, arguments):
                assert index == len(calls) - 1
                calls[-1] = ToolCall(calls[-1].name, calls[-1].arguments_json + arguments)
    assert (content, calls) == (stream.content, stream.calls)
    return content, calls


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (F, "", [CALL]),
        (f"  {F}\n", "", [CALL]),
        (f"{F}\n{F}", "", [CALL, CALL]),
        (f"<tool_call>\n{F}\n</tool_call>", "", [CALL]),
        (f"<tool_call>{F}</tool_call>\n<tool_call>{F}</tool_call>", "", [CALL, CALL]),
        (f"<tool_call>\n{F}\n{F}\n</tool_call>", "", [CALL, CALL]),
        (f"<tool_call>\n{F}", "", [CALL]),
        (f"I look.\n<tool_call>{F}</tool_call>\n", "I look.", [CALL]),
        (f"<tool_call>{F}</tool_call> done", "done", [CALL]),
        (f"{F}\nso it is\n", "so it is\n", [CALL]),
        ('{"name": "f", "parameters": {}}', "", [ToolCall("f", "{}")]),
        ('{"name": "f"}', "", [ToolCall("f", "{}")]),
        ('{"arguments": {"a": "é"}, "name": "f"}', "", [ToolCall("f", '{"a": "é"}')]),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', "", [CALL]),
        ('{"name": "f", "arguments": {"a": 1}, "id": "}"}', "", [CALL]),
        (
            '{"name":"f","arguments":{"a":"}\\"{","b":[{}]}}',
            "",
            [ToolCall("f", '{"a":"}\\"{","b":[{}]}')],
        ),
        ('{"name": "\\u0066", "arguments": {"a": 1}}', "", [CALL]),
    ],
)
def test_calls_are_found(text: str, content: str, calls: list[ToolCall]) -> None:
    assert split([text]) == (content, calls)
    assert parse_tool_calls(text, NAMES) == calls


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "hello",
        "a < b <tool",
        '{"name": "other", "arguments": {}}',
        '{"name": "Bob", "age": 3}',
        '{"title": "x", "name": "f"}',
        "{1}",
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": "no"}',
        f"The call is {F}",
        "<tool_call>hello</tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>\n{broken}\n</tool_call>",
        '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
        '{"name": "f", "arg',
        '{"name": ["f"]}',
        '{"arguments": {"a": 1}}',
    ],
)
def test_all_else_is_content_exactly(text: str) -> None:
    assert split([text]) == (text, [])
    assert parse_tool_calls(text, NAMES) is None


def test_a_call_after_something_like_one_is_still_found() -> None:
    text = f'<tool_call>{{"x": 1}}<tool_call>{F}</tool_call>'
    assert split([text]) == ('<tool_call>{"x": 1}', [CALL])


def test_arguments_come_as_they_are_written_and_the_name_before_them() -> None:
    stream = ToolCallStream(NAMES)
    assert stream.feed('{"name": "f", "argum') == []
    assert stream.feed('ents": {"ci') == [CallPiece(0, "f", ""), CallPiece(0, None, '{"ci')]
    assert stream.feed('ty": "Par') == [CallPiece(0, None, 'ty": "Par')]
    assert stream.feed('is"}}') == [CallPiece(0, None, 'is"}')]
    assert stream.close() == []


def test_content_is_told_at_once_but_for_what_may_become_a_wrapper() -> None:
    stream = ToolCallStream(NAMES)
    assert stream.feed("I look <tool") == [ContentPiece("I look")]
    assert stream.feed("box") == [ContentPiece(" <toolbox")]
    assert stream.feed(" {") == [ContentPiece(" {")]


def test_json_that_is_no_call_is_not_held_back_to_its_end() -> None:
    stream = ToolCallStream(NAMES)
    assert stream.feed('{"answer"') == []
    told = stream.feed(': "a lo')
    assert "".join(piece.text for piece in told if isinstance(piece, ContentPiece)) == (
        '{"answer": "a lo'
    )


def test_a_call_cut_short_keeps_what_there_is_and_does_not_parse() -> None:
    text = '{"name": "f", "arguments": {"a": [1'
    assert split([text]) == ("", [ToolCall("f", '{"a": [1')])
    assert parse_tool_calls(text, NAMES) is None


def test_without_names_any_function_is_known() -> None:
    assert parse_tool_calls('{"name": "whatever", "arguments": {}}') == [ToolCall("whatever", "{}")]


PARTS = st.lists(
    st.sampled_from(
        [F, "<tool_call>", "</tool_call>", "\n", " ", "{", "}", '"', "\\", "text", "<", '"name"']
    )
    | st.text(max_size=3),
    max_size=12,
).map("".join)


@settings(deadline=None)
@given(PARTS, st.data())
def test_how_the_text_is_cut_makes_no_difference(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(pieces) == split([text]) == split(list(text))


@settings(deadline=None)
@given(PARTS)
def test_text_is_never_lost_but_for_blanks_beside_calls(text: str) -> None:
    content, calls = split([text])
    if not calls:
        assert content == text


ARGUMENTS = st.dictionaries(
    st.text(max_size=5), st.recursive(st.text() | st.integers(), st.lists, max_leaves=5)
)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(NAMES), ARGUMENTS), min_size=1, max_size=4))
def test_any_arguments_come_back_as_they_were_written(made: list[tuple[str, Any]]) -> None:
    lines = [json.dumps({"name": name, "arguments": value}) for name, value in made]
    for text in ("\n".join(lines), "".join(f"<tool_call>{line}</tool_call>" for line in lines)):
        calls = parse_tool_calls(text, NAMES)
        assert calls == [ToolCall(name, json.dumps(value)) for name, value in made]


def test_a_long_answer_is_read_in_linear_time() -> None:
    stream = ToolCallStream(NAMES)
    told = stream.feed('{"arguments": {"a": "')
    for _ in range(20_000):
        told += stream.feed("word ")
    told += stream.feed('"}, "name": "f"}')
    assert len(stream.calls) == 1
    assert len(stream.calls[0].arguments_json) > 100_000
