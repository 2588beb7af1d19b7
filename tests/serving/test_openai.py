"""Bytes to requests, and what is said about bytes that are none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.openai import (
    ApiError,
    ChatRequest,
    CompletionRequest,
    context_too_long,
    model_not_found,
    read,
)
from ridgeline.serving.openai.requests import NamedTool

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TOOL = {"type": "function", "function": {"name": "f"}}


def chat(**fields: object) -> bytes:
    return json.dumps(CHAT | fields).encode()


def refused(body: bytes, into: type = ChatRequest) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(body, into)
    assert caught.value.status == 400
    assert caught.value.type == "invalid_request_error"
    return caught.value


def status(body: bytes) -> int:
    """What a client would be answered."""
    try:
        read(body, ChatRequest)
    except ApiError as error:
        return error.status
    return 200


def test_every_field_is_read() -> None:
    request = read(
        chat(
            max_completion_tokens=7,
            temperature=0,
            logit_bias={"5": -100},
            stop=["a", "b"],
            tools=[TOOL],
            tool_choice={"type": "function", "function": {"name": "f"}},
            response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
            stream_options={"include_usage": True},
        ),
        ChatRequest,
    )
    assert (request.temperature, request.max_completion_tokens) == (0, 7)
    assert request.logit_bias == {5: -100.0}
    assert isinstance(request.tool_choice, NamedTool)
    assert request.response_format is not None
    assert request.stream_options is not None
    assert request.stream_options.include_usage


def test_null_means_not_given_for_every_optional_field() -> None:
    fields = set(ChatRequest.__struct_fields__) - {"model", "messages"}
    assert read(chat(**dict.fromkeys(fields)), ChatRequest) == read(chat(), ChatRequest)


def test_unknown_fields_are_ignored() -> None:
    assert read(chat(store=True, metadata={"a": "b"}), ChatRequest) == read(chat(), ChatRequest)


@pytest.mark.parametrize(
    ("prompt", "kind"), [("a", str), (["a", "b"], list), ([1, 2], list), ([[1], [2, 3]], list)]
)
def test_a_completion_prompt_is_text_or_ids_or_lists_of_them(prompt: object, kind: type) -> None:
    body = json.dumps({"model": "m", "prompt": prompt}).encode()
    request = read(body, CompletionRequest)
    assert request.prompt == prompt
    assert type(request.prompt) is kind


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": float("inf")}, "top_p"),
        ({"logit_bias": {"1": float("nan")}}, "logit_bias.1"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": -1}, "min_p"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"max_completion_tokens": -5}, "max_completion_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": -2.5}, "frequency_penalty"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias[...]"),
        ({"stop": ["x"] * 100_000}, "stop"),
        ({"stop": ["x", ""]}, "stop[1]"),
        ({"stop": "x" * 129}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": "hello"}, "messages"),
        ({"model": 5}, "model"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"priority": "high"}, "priority"),
        ({"functions": [{}]}, "functions"),
        ({"guided_json": {}, "structured_outputs": {"regex": "a"}}, "structured_outputs"),
    ],
)
def test_a_wrong_value_names_its_field(fields: dict[str, object], param: str) -> None:
    error = refused(chat(**fields))
    assert error.param == param
    assert param.split("[")[0].split(".")[0] in error.message


@pytest.mark.parametrize("field", ["model", "messages"])
def test_a_missing_field_is_named(field: str) -> None:
    body = json.dumps({name: value for name, value in CHAT.items() if name != field}).encode()
    error = refused(body)
    assert error.param == field
    assert error.message == f"Missing required parameter: {field}."


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[1]",
        b'"chat"',
        chat() + b"x",
        b'{"model": "\xff"}',
        b'{"other": "\xc3\x28"}' + b"x",
        b'{"model": "\\ud800"}',
        b"[" * 200_000,
        b'{"x":' * 100_000,
        chat()[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=range(12),
)
def test_what_is_no_json_object_gets_400(body: bytes) -> None:
    assert refused(body).message


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_400(body: bytes) -> None:
    assert status(body) in (200, 400)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(sorted(ChatRequest.__struct_fields__)), inner, max_size=4
            )
        ),
        max_leaves=10,
    )
)
def test_no_json_does_worse_than_400(value: object) -> None:
    assert status(json.dumps(value).encode()) in (200, 400)


def test_errors_have_openais_shape() -> None:
    assert model_not_found("x", ["b", "a"]).body() == {
        "error": {
            "message": "The model `x` does not exist here. Models served: a, b.",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
    assert ApiError(503, "later").type == "server_error"


def test_a_context_error_counts_prompt_and_output() -> None:
    error = context_too_long(90, 20, 100, param="messages")
    assert (error.code, error.param) == ("context_length_exceeded", "messages")
    assert error.message == (
        "This model's maximum context length is 100 tokens, but the prompt has 90 tokens and 20 "
        "of output were asked for. Shorten the prompt or lower max_tokens."
    )
