"""What of a Responses request becomes what of a chat completion's."""

import json
from typing import Any

import pytest

from ridgeline.serving.gateway.dialects.responses_request import ResponsesRequest, chat_body
from ridgeline.serving.openai import ApiError, read

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
OTHER = {"type": "function", "name": "g"}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
MADE = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
THOUGHT = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}


def chat(**fields: Any) -> Any:
    body = json.dumps({"model": "m", "input": "?", **fields}).encode()
    return json.loads(chat_body(read(body, ResponsesRequest), body))


def test_one_turn_of_the_assistant_is_one_message() -> None:
    user = {"role": "user", "content": "?"}
    output = {"type": "function_call_output", "call_id": "c", "output": "r"}
    told = chat(input=[user, THOUGHT, ANSWER, CALL, CALL, output, ANSWER])
    tool = {"role": "tool", "tool_call_id": "c", "content": "r"}
    assert told["messages"] == [
        user,
        {"role": "assistant", "content": "a", "reasoning_content": "hm", "tool_calls": [MADE] * 2},
        tool,
        {"role": "assistant", "content": "a"},
    ]


@pytest.mark.parametrize(
    ("part", "becomes"),
    [
        ({"type": "input_text", "text": "t"}, {"type": "text", "text": "t"}),
        (
            {"type": "input_image", "image_url": "http://i", "detail": "low"},
            {"type": "image_url", "image_url": {"url": "http://i", "detail": "low"}},
        ),
        (
            {"type": "input_file", "file_data": "data:x", "filename": "f"},
            {"type": "file", "file": {"file_data": "data:x", "filename": "f"}},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
        ),
    ],
)
def test_parts_are_passed_on(part: dict[str, Any], becomes: dict[str, Any]) -> None:
    text = {"type": "input_text", "text": "see"}
    told = chat(input=[{"role": "user", "content": [text, part]}])
    assert told["messages"][0]["content"] == [{"type": "text", "text": "see"}, becomes]


@pytest.mark.parametrize(
    ("choice", "becomes", "names"),
    [
        ("required", "required", ["f", "g"]),
        ({"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}, None),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [OTHER]},
            "required",
            ["g"],
        ),
    ],
)
def test_choices_among_tools(choice: Any, becomes: Any, names: list[str] | None) -> None:
    told = chat(tools=[FUNCTION, OTHER], tool_choice=choice)
    assert told["tool_choice"] == becomes
    assert [tool["function"]["name"] for tool in told["tools"]] == (names or ["f", "g"])


def test_unknown_fields_go_to_the_replica_and_the_services_own_do_not() -> None:
    told = chat(top_k=5, seed=1, store=True, truncation="auto", prompt_cache_key="k", stream=True)
    assert told == {
        "model": "m",
        "messages": [{"role": "user", "content": "?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "top_k": 5,
        "seed": 1,
    }


def test_a_developer_is_told_as_the_system() -> None:
    told = chat(input=[{"role": "developer", "content": "d"}, {"role": "user", "content": "u"}])
    assert told["messages"][0] == {"role": "system", "content": "d"}


def test_effort_and_format() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    told = chat(text={"format": form, "verbosity": "low"}, reasoning={"effort": "low"})
    named = {"name": "n", "schema": {"type": "object"}, "strict": True}
    assert told["response_format"] == {"type": "json_schema", "json_schema": named}
    assert (told["reasoning_effort"], told["verbosity"]) == ("low", "low")
    assert "response_format" not in chat(text={"format": {"type": "text"}})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "i"}]}, "input[0]"),
        ({"input": [{"type": "web_search_call", "id": "i"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input[0].content[0]",
        ),
        ({"previous_response_id": "r"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True}, "background"),
        ({"n": 2}, "n"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        chat(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)
