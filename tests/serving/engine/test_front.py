"""A replica through the unmodified `openai` client. The engine behind it is the stub."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from tests.serving.engine.byte_model import IM_END, write_byte_model
from tests.serving.engine.fronts import FrontProcess, ask, front_process

import ridgeline

CALL = '{"name": "add", "arguments": {"a": 1, "b": [2]}}'
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontProcess]:
    model = write_byte_model(tmp_path_factory.mktemp("bytes"))
    with front_process(model, max_model_len=2000, api_key="k") as process:
        process.until("ready")
        yield process


@pytest.fixture(scope="module")
def client(front: FrontProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{front.url}/v1", api_key="k", max_retries=0, timeout=20) as client:
        yield client


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "stub", "messages": [{"role": "user", "content": f"say:{text}"}], **more}


def completes(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "stub", "prompt": f"say:{text}", **more}


def test_a_chat(client: OpenAI) -> None:
    answer = client.chat.completions.create(**says("héllo 🙂"))
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.content == "héllo 🙂"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len("héllo 🙂".encode()) + 1  # and the end
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_chat_stream_says_the_same_piece_by_piece(client: OpenAI) -> None:
    chunks = list(client.chat.completions.create(**says("héllo 🙂", stream=True)))
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content for chunk in chunks]
    assert texts == ["", "h", "é", "l", "l", "o", " ", "🙂", None]
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert all(chunk.usage is None for chunk in chunks)


def test_usage_comes_in_a_last_chunk_of_its_own_when_asked_for(client: OpenAI) -> None:
    more = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = client.chat.completions.create(**says("cached hi", **more))
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert last.usage.completion_tokens == len("cached hi") + 1
    assert last.usage.prompt_tokens_details.cached_tokens == 3


def test_n_choices_come_interleaved_and_each_ends(client: OpenAI) -> None:
    answer = client.chat.completions.create(**says("x", n=3))
    assert [choice.message.content for choice in answer.choices] == ["x0", "x1", "x2"]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 9
    texts, ends = ["", "", ""], set()
    for chunk in client.chat.completions.create(**says("x", n=3, stream=True)):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            ends |= {choice.index} if choice.finish_reason else set()
    assert (texts, ends) == (["x0", "x1", "x2"], {0, 1, 2})


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("more", "text", "reason"),
    [
        ({"max_tokens": 4}, "abcd", "length"),
        ({"max_completion_tokens": 3, "max_tokens": 5}, "abc", "length"),
        ({"stop": "def"}, "abc", "stop"),
        ({"stop": ["xyz", "efg", "fg"]}, "abcd", "stop"),
        ({"stop": ["ij", "hij!"]}, "abcdefgh", "stop"),
        ({"stop": "j!"}, "abcdefghij", "stop"),
        ({"extra_body": {"stop_token_ids": [ord("c")]}}, "ab", "stop"),
        ({"extra_body": {"ignore_eos": True}, "max_tokens": 12}, "abcdefghijab", "length"),
        ({"extra_body": {"min_tokens": 5}, "stop": "b", "max_tokens": 9}, "abcdefghi", "length"),
    ],
)
def test_where_an_answer_ends(
    client: OpenAI, more: dict[str, Any], text: str, reason: str, streamed: bool
) -> None:
    asked = says("abcdefghij", **more)
    if not streamed:
        choice = client.chat.completions.create(**asked).choices[0]
        assert (choice.message.content, choice.finish_reason) == (text, reason)
        return
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    assert chunks[-1].choices[0].finish_reason == reason


def test_chat_log_probabilities(client: OpenAI) -> None:
    more = {"logprobs": True, "top_logprobs": 2}
    choice = client.chat.completions.create(**says("hé", **more)).choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [one.bytes for one in choice.logprobs.content] == [[0x68], [0xC3], [0xA9]]
    assert [one.token for one in choice.logprobs.content] == ["h", "\ufffd", "\ufffd"]
    assert [one.logprob for one in choice.logprobs.content[0].top_logprobs] == [-0.5, -1.5]
    streamed = [
        one.bytes
        for chunk in client.chat.completions.create(**says("hé", stream=True, **more))
        if chunk.choices[0].logprobs
        for one in chunk.choices[0].logprobs.content or []
    ]
    assert streamed == [[0x68], [0xC3], [0xA9]]


def test_a_completion_with_log_probabilities(client: OpenAI) -> None:
    answer = client.completions.create(**completes("hé", logprobs=2))
    choice = answer.choices[0]
    assert (answer.object, choice.text, choice.finish_reason) == ("text_completion", "hé", "stop")
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == ["h", "bytes:\\xc3", "bytes:\\xa9"]
    assert choice.logprobs.token_logprobs == [-0.5] * 3
    assert choice.logprobs.text_offset == [0, 1, 1]
    assert choice.logprobs.top_logprobs is not None
    assert choice.logprobs.top_logprobs[0] == {"h": -0.5, "i": -1.5}


def test_a_completion_stream(client: OpenAI) -> None:
    chunks = list(client.completions.create(**completes("abc", stream=True, max_tokens=2)))
    assert [chunk.choices[0].text for chunk in chunks] == ["a", "b", ""]
    assert chunks[-1].choices[0].finish_reason == "length"


def test_plain_completions_stop_after_sixteen_tokens_unless_told(client: OpenAI) -> None:
    assert client.completions.create(**completes("x" * 99)).choices[0].text == "x" * 16


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("say:a", ["a"]),
        (["say:a", "say:b"], ["a", "b"]),
        (list(b"say:a"), ["a"]),
        ([list(b"say:a"), list(b"say:b")], ["a", "b"]),
    ],
)
def test_a_prompt_may_be_text_or_ids_or_lists_of_them(
    client: OpenAI, prompt: Any, texts: list[str]
) -> None:
    answer = client.completions.create(model="stub", prompt=prompt)
    assert [choice.text for choice in answer.choices] == texts
    echoed = client.completions.create(model="stub", prompt=prompt, echo=True, n=2)
    assert [choice.text for choice in echoed.choices] == [
        f"say:{text}{text}{at}" for text in texts for at in (0, 1)
    ]
    assert echoed.usage is not None
    assert echoed.usage.prompt_tokens == 5 * len(texts)


def test_a_streamed_echo_begins_with_the_prompt(client: OpenAI) -> None:
    chunks = client.completions.create(**completes("hi", stream=True, echo=True))
    assert [chunk.choices[0].text for chunk in chunks] == ["say:hi", "h", "i", ""]


@pytest.mark.parametrize("choice", [None, "auto", "required", TOOL | {"function": {"name": "add"}}])
@pytest.mark.parametrize("streamed", [False, True])
def test_tool_calls(client: OpenAI, choice: Any, streamed: bool) -> None:
    # The stub says what the user wants, not what a grammar would make a model say.
    asked = says(CALL, tools=[TOOL], **({"tool_choice": choice} if choice else {}))
    if streamed:
        calls, reason, content = _streamed_calls(client, asked)
    else:
        told = client.chat.completions.create(**asked).choices[0]
        reason, content = told.finish_reason, told.message.content
        calls = [
            (call.id, call.function.name, call.function.arguments)
            for call in told.message.tool_calls or []
            if call.type == "function"
        ]
    assert [call[1:] for call in calls] == [("add", '{"a": 1, "b": [2]}')]
    assert calls[0][0].startswith("call_")
    assert (reason, content) == ("tool_calls", None)


def _streamed_calls(
    client: OpenAI, asked: dict[str, Any]
) -> tuple[list[tuple[str, str, str]], str | None, str | None]:
    calls: dict[int, list[str]] = {}
    content, reason = "", None
    for chunk in client.chat.completions.create(**asked, stream=True):
        reason = chunk.choices[0].finish_reason
        content += chunk.choices[0].delta.content or ""
        for call in chunk.choices[0].delta.tool_calls or []:
            if call.id:
                calls[call.index] = [call.id, call.function.name, ""]
            calls[call.index][2] += call.function.arguments
    return [(one[0], one[1], one[2]) for one in calls.values()], reason, content or None


def test_without_a_call_an_answer_with_tools_is_content(client: OpenAI) -> None:
    asked = says('{"name": "other"} it is', tools=[TOOL])
    choice = client.chat.completions.create(**asked).choices[0]
    assert (choice.message.content, choice.finish_reason) == ('{"name": "other"} it is', "stop")
    assert choice.message.tool_calls is None


def test_tool_choice_none_hides_the_tools(client: OpenAI) -> None:
    none = client.chat.completions.create(**says(CALL, tools=[TOOL], tool_choice="none"))
    auto = client.chat.completions.create(**says(CALL, tools=[TOOL]))
    assert none.choices[0].message.content == CALL
    assert none.usage is not None
    assert auto.usage is not None
    assert none.usage.prompt_tokens < auto.usage.prompt_tokens


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"logit_bias": {"259": 1}}, "logit_bias"),
        ({"extra_body": {"stop_token_ids": [259]}}, "stop_token_ids"),
        ({"extra_body": {"min_tokens": 9}, "max_tokens": 8}, "min_tokens"),
        ({"tool_choice": "required"}, "tools"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "quark"}},
                }
            },
            "response_format",
        ),
        ({"extra_body": {"chat_template_kwargs": {"messages": []}}}, "chat_template_kwargs"),
        ({"messages": [{"role": "user", "content": "refuse me"}]}, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0]",
        ),
    ],
)
def test_what_this_model_cannot_do_is_400_and_names_the_field(
    client: OpenAI, more: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**(says("x") | more))
    assert caught.value.param == param


def test_too_long_a_prompt(client: OpenAI) -> None:
    for asked in (says("x" * 1999), says("x", max_tokens=1990), says("x" * 3_000_000)):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**asked)
        assert caught.value.code == "context_length_exceeded"
        assert "maximum context length is 2000 tokens" in caught.value.message


def test_an_unknown_model(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(**(says("x") | {"model": "gpt"}))
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_a_wrong_key_gets_401_where_a_key_is_needed(front: FrontProcess) -> None:
    with OpenAI(base_url=f"{front.url}/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError) as caught:
            stranger.models.list()
        assert caught.value.code == "invalid_api_key"
    assert ask(f"{front.url}/tokenize", {"prompt": "a"}).status == 401
    for path in ("/health", "/ready", "/metrics", "/version"):
        assert ask(front.url + path).status == 200


def test_an_engine_error_is_a_status_before_the_first_token_and_an_event_after(
    client: OpenAI,
) -> None:
    for streamed in (False, True):
        with pytest.raises(openai.InternalServerError, match="told to fail"):
            client.completions.create(**completes("fail", stream=streamed))
    chunks = client.completions.create(**completes("late-fail", stream=True))
    assert next(chunks).choices[0].text == "l"
    client.completions.create(**completes("trip"))
    with pytest.raises(openai.APIError, match="told to fail"):
        next(chunks)


def test_models_and_version(front: FrontProcess, client: OpenAI) -> None:
    (card,) = client.models.list().data
    assert (card.id, card.object, card.owned_by) == ("stub", "model", "ridgeline")
    assert card.model_dump()["max_model_len"] == 2000
    assert client.models.retrieve("stub").id == "stub"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")
    assert ask(f"{front.url}/version").json() == {"version": ridgeline.__version__}


def test_tokenize_and_detokenize(front: FrontProcess) -> None:
    key = {"Authorization": "Bearer k"}
    body = {"model": "stub", "prompt": "hi<|im_end|>", "return_token_strs": True}
    assert ask(f"{front.url}/tokenize", body, **key).json() == {
        "count": 3,
        "max_model_len": 2000,
        "tokens": [104, 105, IM_END],
        "token_strs": ["h", "i", "<|im_end|>"],
    }
    chat = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "chat_template_kwargs": {"suffix": "!"},
    }
    tokens = ask(f"{front.url}/tokenize", chat, **key).json()["tokens"]
    text = ask(f"{front.url}/detokenize", {"tokens": tokens}, **key).json()["prompt"]
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n!"


def test_metrics_count_requests_by_how_they_ended(front: FrontProcess, client: OpenAI) -> None:
    def stopped() -> float:
        lines = ask(f"{front.url}/metrics").body.decode().splitlines()
        (line,) = [one for one in lines if "request_success_total" in one and '"stop"' in one]
        return float(line.split()[-1])

    before = stopped()
    client.completions.create(**completes("a", n=2))
    assert stopped() == before + 2


def test_request_ids_are_kept_or_made(front: FrontProcess) -> None:
    key = {"Authorization": "Bearer k"}
    body = completes("hi", stream=True)
    url = f"{front.url}/v1/completions"
    assert ask(url, body, **key, **{"X-Request-Id": "mine-1"}).headers["X-Request-Id"] == "mine-1"
    made = ask(url, b"{", **key, **{"X-Request-Id": "<script>"}).headers["X-Request-Id"]
    assert len(made) == 32


def test_unknown_paths_and_methods_get_openais_shape(front: FrontProcess) -> None:
    key = {"Authorization": "Bearer k"}
    missing = ask(f"{front.url}/v1/chat/complete", {}, **key)
    assert (missing.status, missing.json()["error"]["code"]) == (404, "unknown_url")
    wrong = ask(f"{front.url}/v1/chat/completions", **key)
    assert (wrong.status, wrong.headers["Allow"]) == (405, "POST")


def test_the_whole_stream_ends_with_done(front: FrontProcess) -> None:
    key = {"Authorization": "Bearer k"}
    reply = ask(f"{front.url}/v1/completions", completes("hi", stream=True), **key)
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    events = reply.body.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(json.loads(event.removeprefix("data: ")) for event in events[:-2])
