"""Anthropic's own client speaks the Messages API to a chat-completions replica."""

import json
from typing import Any

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_script import call, cut, delta, events, sse, usage, whole
from ridgeline.serving.gateway.dialects import DIALECTS
from ridgeline.serving.openai import ApiError

WEATHER = {
    "name": "weather",
    "description": "the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ASK = [{"role": "user", "content": "Capital of France?"}]
TEXT = sse(
    delta({"role": "assistant", "content": ""}),
    delta({"content": "Pa"}),
    delta({"content": "ris"}),
    delta({}, "stop"),
    {"choices": [], "usage": usage(7, 3, 2)},
)
CALLS = sse(
    delta({"reasoning": "Hm"}),
    delta({"content": "I look."}),
    delta(call(0, "", "weather")),
    delta(call(0, '{"city":')),
    delta(call(0, '"Oslo"}')),
    delta(call(1, '{"city":"Rome"}', "weather")),
    delta({}, "tool_calls"),
    {"choices": [], "usage": usage(9, 30)},
)


def client(scripted: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=scripted.url, api_key="sk-test", max_retries=0)


async def test_a_question_is_answered(scripted: Any) -> None:
    scripted.whole = whole({"role": "assistant", "content": "Paris"})
    async with client(scripted) as api:
        told = await api.messages.create(
            model="m",
            max_tokens=20,
            system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            messages=ASK,
            stop_sequences=["\n"],
            extra_body={"temperature": 0.5, "top_k": 5},
        )
    assert scripted.path == "/v1/chat/completions"
    assert scripted.asked == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, *ASK],
        "max_tokens": 20,
        "stop": ["\n"],
        "temperature": 0.5,
        "top_k": 5,
    }
    assert told.content[0].type == "text"
    assert (told.content[0].text, told.stop_reason, told.id) == ("Paris", "end_turn", "msg_0123")
    counted = told.usage
    assert (counted.input_tokens, counted.cache_read_input_tokens) == (5, 2)
    assert counted.output_tokens == 3


@pytest.mark.parametrize(
    ("finish", "more", "reason", "sequence"),
    [
        ("length", {}, "max_tokens", None),
        ("stop", {"stop_reason": "END"}, "stop_sequence", "END"),
        ("stop", {"stop_reason": 2}, "end_turn", None),
        ("content_filter", {}, "refusal", None),
    ],
)
async def test_the_reason_of_the_end(
    scripted: Any, finish: str, more: dict[str, Any], reason: str, sequence: str | None
) -> None:
    scripted.whole = whole({"role": "assistant", "content": "x"}, finish, **more)
    async with client(scripted) as api:
        told = await api.messages.create(model="m", max_tokens=2, messages=ASK)
    assert (told.stop_reason, told.stop_sequence) == (reason, sequence)


async def test_tools_are_used_and_their_results_go_back(scripted: Any) -> None:
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    scripted.whole = whole(
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm",
            "tool_calls": [{"id": "call_9", "type": "function", "function": function}],
        },
        "tool_calls",
    )
    async with client(scripted) as api:
        first = await api.messages.create(
            model="m",
            max_tokens=50,
            messages=ASK,
            tools=[WEATHER],
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
        )
        assert first.stop_reason == "tool_use"
        thought, text, use = first.content
        assert (thought.type, text.type, use.type) == ("thinking", "text", "tool_use")
        assert (use.id, use.name, use.input) == ("call_9", "weather", {"city": "Oslo"})
        assert scripted.asked["tool_choice"] == "required"
        assert scripted.asked["parallel_tool_calls"] is False
        assert scripted.asked["tools"][0]["function"] == {
            "name": "weather",
            "description": "the weather",
            "parameters": WEATHER["input_schema"],
        }
        scripted.whole = whole({"role": "assistant", "content": "Rain"})
        result = {"type": "tool_result", "tool_use_id": "call_9", "content": "rain"}
        image = {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="},
        }
        await api.messages.create(
            model="m",
            max_tokens=50,
            messages=[
                *ASK,
                {"role": "assistant", "content": first.content},
                {"role": "user", "content": [result, {"type": "text", "text": "and?"}, image]},
            ],
        )
    _, assistant, tool, user = scripted.asked["messages"]
    assert assistant["content"] == "I look."
    assert assistant["reasoning_content"] == "Hm"
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    assert tool == {"role": "tool", "tool_call_id": "call_9", "content": "rain"}
    assert user["content"] == [
        {"type": "text", "text": "and?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
    ]


async def test_a_stream_has_anthropics_order(scripted: Any) -> None:
    scripted.pieces = [TEXT]
    async with client(scripted) as api:
        stream = await api.messages.create(model="m", max_tokens=9, messages=ASK, stream=True)
        said = [event async for event in stream]
    assert scripted.asked["stream_options"] == {"include_usage": True}
    assert [event.type for event in said] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


async def test_the_clients_own_accumulation_has_all_of_it(scripted: Any) -> None:
    scripted.pieces = cut(CALLS, list(range(0, len(CALLS), 7)))
    async with (
        client(scripted) as api,
        api.messages.stream(model="m", max_tokens=9, messages=ASK, tools=[WEATHER]) as stream,
    ):
        final = await stream.get_final_message()
    thought, text, *uses = final.content
    assert thought.type == "thinking"
    assert text.type == "text"
    assert (thought.thinking, text.text) == ("Hm", "I look.")
    assert [one.input for one in uses] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert [one.id for one in uses] == ["call_0", "call_1"]
    assert final.stop_reason == "tool_use"
    assert (final.usage.input_tokens, final.usage.output_tokens) == (9, 30)


async def test_a_cut_stream_raises_in_the_client(scripted: Any) -> None:
    scripted.pieces = [sse(delta({"content": "Pa"}), done=False)]
    scripted.broken = ApiError(502, "The replica died.", code="upstream_failed")
    async with client(scripted) as api:
        stream = await api.messages.create(model="m", max_tokens=9, messages=ASK, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="The replica died"):
            async for _ in stream:
                pass


async def test_errors_have_anthropics_shape(scripted: Any) -> None:
    async with client(scripted) as api:
        scripted.status, scripted.whole = 429, {"error": {"message": "slow down"}}
        with pytest.raises(anthropic.RateLimitError) as limited:
            await api.messages.create(model="m", max_tokens=9, messages=ASK)
        assert limited.value.body == {
            "type": "error",
            "error": {"type": "rate_limit_error", "message": "slow down"},
        }
        scripted.status, scripted.whole = 404, {"error": {"message": "no such model"}}
        with pytest.raises(anthropic.NotFoundError, match="no such model"):
            await api.messages.create(model="x", max_tokens=9, messages=ASK)
        other = api.with_options(api_key="other")
        with pytest.raises(anthropic.AuthenticationError):
            await other.messages.create(model="m", max_tokens=9, messages=ASK)
        with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
            await api.messages.create(model="m", max_tokens=0, messages=ASK)


async def test_tokens_are_counted_by_the_replica(scripted: Any) -> None:
    scripted.whole = {"count": 12, "max_model_len": 100, "tokens": []}
    async with client(scripted) as api:
        told = await api.messages.count_tokens(
            model="m", system="Be brief.", messages=ASK, tools=[WEATHER]
        )
    assert told.input_tokens == 12
    assert scripted.path == "/tokenize"
    assert [one["role"] for one in scripted.asked["messages"]] == ["system", "user"]
    assert scripted.asked["tools"][0]["function"]["name"] == "weather"


def translated(**more: Any) -> Any:
    body = {"model": "m", "max_tokens": 9, "messages": ASK, **more}
    dialect = DIALECTS["/v1/messages"]
    return dialect.request(json.dumps(body).encode(), request_id="req-1", now_s=0.0)


@given(
    st.sampled_from([TEXT, CALLS, CALLS.replace(b"\n\n", b"\r\n\r\n")]),
    st.lists(st.integers(0, 5_000), max_size=30),
)
def test_bytes_cut_anywhere_say_the_same(data: bytes, places: list[int]) -> None:
    at_once, in_pieces = translated().stream(), translated().stream()
    said = b"".join(in_pieces.feed(piece) for piece in cut(data, places)) + in_pieces.finish(None)
    assert said == at_once.feed(data) + at_once.finish(None)


@given(st.integers(0, len(CALLS)))
def test_every_stream_ends_told(end: int) -> None:
    stream = translated().stream()
    said = events(stream.feed(CALLS[:end]) + stream.finish(None))
    assert said[-1]["type"] == ("message_stop" if end == len(CALLS) else "error")
    assert stream.feed(b'data: {"choices":[]}\n\n') + stream.finish(None) == b""


def test_a_call_cut_within_its_arguments_shows_what_there_is() -> None:
    function = {"name": "weather", "arguments": '{"city": "Os'}
    calls = [{"id": "c", "type": "function", "function": function}]
    cut_short = whole({"role": "assistant", "content": None, "tool_calls": calls}, "length")
    told = json.loads(translated().whole(json.dumps(cut_short).encode()))
    assert told["stop_reason"] == "max_tokens"
    assert told["content"][0]["input"] == {"INVALID_JSON": '{"city": "Os'}


def test_a_replica_that_counts_nothing_is_counted_by_its_pieces() -> None:
    stream = translated().stream()
    said = events(stream.feed(sse(delta({"content": "a"}), delta({"content": "b"}, "stop"))))
    assert said[-2]["usage"] == {"input_tokens": 0, "output_tokens": 2}
