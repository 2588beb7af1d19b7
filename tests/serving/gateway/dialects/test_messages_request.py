"""What of a Messages request becomes what of a chat completion's."""

import json
from typing import Any

import pytest

from ridgeline.serving.gateway.dialects.messages_request import MessagesRequest, chat_body
from ridgeline.serving.openai import ApiError, read

ASK = [{"role": "user", "content": "?"}]
TOOL = {"name": "f", "input_schema": {"type": "object"}}


def chat(**fields: Any) -> Any:
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": ASK, **fields}).encode()
    return json.loads(chat_body(read(body, MessagesRequest), body))


def said(*blocks: dict[str, Any], role: str = "user") -> Any:
    return chat(messages=[*ASK, {"role": role, "content": list(blocks)}, *ASK])["messages"][1:-1]


def test_results_come_before_what_the_user_says() -> None:
    text = {"type": "text", "text": "and?"}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [text], "is_error": True}
    assert said(text, result) == [
        {"role": "tool", "tool_call_id": "c", "content": "and?"},
        {"role": "user", "content": "and?"},
    ]
    assert said({"type": "tool_result", "tool_use_id": "c"}) == [
        {"role": "tool", "tool_call_id": "c", "content": ""}
    ]


def test_a_turn_of_the_assistant() -> None:
    told = said(
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
        role="assistant",
    )
    function = {"name": "f", "arguments": '{"a": 1}'}
    assert told == [
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        }
    ]


@pytest.mark.parametrize(
    ("source", "becomes"),
    [
        ({"type": "url", "url": "http://i"}, "http://i"),
        (
            {"type": "base64", "media_type": "image/png", "data": "QQ=="},
            "data:image/png;base64,QQ==",
        ),
    ],
)
def test_images_are_passed_on(source: dict[str, Any], becomes: str) -> None:
    told = said({"type": "image", "source": source})
    assert told[0]["content"] == [{"type": "image_url", "image_url": {"url": becomes}}]


def test_a_plain_document_is_text() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "once"}
    assert said({"type": "document", "source": source}) == [{"role": "user", "content": "once"}]


@pytest.mark.parametrize(
    ("choice", "becomes"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_choices_among_tools(choice: Any, becomes: Any) -> None:
    assert chat(tools=[TOOL], tool_choice=choice)["tool_choice"] == becomes


def test_unknown_fields_go_to_the_replica_and_the_services_own_do_not() -> None:
    form = {"format": {"type": "json_schema", "schema": {"type": "object"}}, "effort": "low"}
    told = chat(
        thinking={"type": "enabled", "budget_tokens": 1024},
        service_tier="auto",
        metadata={"user_id": "u"},
        output_config=form,
        min_p=0.1,
    )
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": True}
    assert told == {
        "model": "m",
        "messages": ASK,
        "max_tokens": 9,
        "min_p": 0.1,
        "user": "u",
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": schema},
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": [*ASK, {"role": "assistant", "content": "The"}]}, "messages"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"n": 2}, "n"),
        ({"system": [{"type": "image"}]}, "system[0].text"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        chat(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize(
    ("block", "param"),
    [
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "source"),
        ({"type": "document", "source": {"type": "base64", "data": "x"}}, "source"),
        ({"type": "search_result"}, "type"),
        ({"type": "tool_result"}, "tool_use_id"),
        ({"type": "text"}, "text"),
    ],
)
def test_content_that_cannot_be_passed_on_is_refused_by_name(
    block: dict[str, Any], param: str
) -> None:
    with pytest.raises(ApiError) as refused:
        said(block)
    assert (refused.value.status, refused.value.param) == (400, f"messages[1].content[0].{param}")
