"""OpenAI's own client speaks the Responses API to a chat-completions replica."""

import json
from typing import Any

import openai
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_script import call, cut, delta, events, sse, usage, whole
from ridgeline.serving.gateway.dialects import DIALECTS
from ridgeline.serving.openai import ApiError

WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
TEXT = sse(
    delta({"role": "assistant", "content": ""}),
    delta({"content": "Pa"}),
    delta({"content": "ris"}),
    delta({}, "stop"),
    {"choices": [], "usage": usage(7, 3, 2)},
)
CALLS = sse(
    delta({"reasoning_content": "Hm"}),
    delta({"content": "I look."}),
    delta(call(0, "", "weather")),
    delta(call(0, '{"city":')),
    delta(call(0, '"Oslo"}')),
    delta(call(1, '{"city":"Rome"}', "weather")),
    delta({}, "tool_calls"),
    {"choices": [], "usage": usage(9, 30)},
)


def client(scripted: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{scripted.url}/v1", api_key="sk-test", max_retries=0)


async def test_a_question_is_answered(scripted: Any) -> None:
    scripted.whole = whole({"role": "assistant", "content": "Paris"})
    async with client(scripted) as api:
        told = await api.responses.create(
            model="m",
            instructions="Be brief.",
            input="Capital of France?",
            max_output_tokens=20,
            temperature=0.5,
        )
    assert scripted.path == "/v1/chat/completions"
    assert scripted.asked == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Capital of France?"},
        ],
        "max_tokens": 20,
        "temperature": 0.5,
    }
    assert (told.output_text, told.status, told.id) == ("Paris", "completed", "resp_0123")
    assert told.instructions == "Be brief."
    assert told.usage is not None
    assert (told.usage.input_tokens, told.usage.output_tokens) == (7, 3)
    assert told.usage.input_tokens_details.cached_tokens == 2


async def test_an_answer_cut_by_its_limit_is_incomplete(scripted: Any) -> None:
    scripted.whole = whole({"role": "assistant", "content": "Par"}, "length")
    async with client(scripted) as api:
        told = await api.responses.create(model="m", input="?")
    assert told.status == "incomplete"
    assert told.incomplete_details is not None
    assert told.incomplete_details.reason == "max_output_tokens"
    assert told.output[0].status == "incomplete"


async def test_tools_are_called_and_their_results_go_back(scripted: Any) -> None:
    scripted.whole = whole(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_9",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
                }
            ],
        },
        "tool_calls",
    )
    async with client(scripted) as api:
        first = await api.responses.create(
            model="m", input=[{"role": "user", "content": "Oslo?"}], tools=[WEATHER]
        )
        made = first.output[0]
        assert made.type == "function_call"
        assert (made.call_id, made.name, made.arguments) == ("call_9", "weather", '{"city":"Oslo"}')
        assert scripted.asked["tools"][0]["function"]["parameters"] == WEATHER["parameters"]
        scripted.whole = whole({"role": "assistant", "content": "Rain"})
        second = await api.responses.create(
            model="m",
            input=[
                {"role": "user", "content": "Oslo?"},
                *first.output,
                {"type": "function_call_output", "call_id": "call_9", "output": "rain"},
            ],
        )
    assert second.output_text == "Rain"
    user, assistant, tool = scripted.asked["messages"]
    assert user == {"role": "user", "content": "Oslo?"}
    assert assistant["content"] is None
    assert assistant["tool_calls"][0]["function"]["name"] == "weather"
    assert tool == {"role": "tool", "tool_call_id": "call_9", "content": "rain"}


async def test_a_schema_is_passed_on_and_parsed_by_the_client(scripted: Any) -> None:
    class City(pydantic.BaseModel):
        name: str

    scripted.whole = whole({"role": "assistant", "content": '{"name":"Paris"}'})
    async with client(scripted) as api:
        told = await api.responses.parse(model="m", input="?", text_format=City)
    assert told.output_parsed == City(name="Paris")
    form = scripted.asked["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["name"] == "City"
    assert form["json_schema"]["schema"]["required"] == ["name"]


async def test_a_stream_has_openais_order(scripted: Any) -> None:
    scripted.pieces = [TEXT]
    async with client(scripted) as api:
        stream = await api.responses.create(model="m", input="?", stream=True)
        said = [event async for event in stream]
    assert scripted.asked["stream_options"] == {"include_usage": True}
    assert [event.type for event in said] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in said] == list(range(10))
    last = said[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "Paris"
    assert last.response.usage is not None
    assert last.response.usage.total_tokens == 10


async def test_the_clients_own_accumulation_agrees_with_the_last_event(scripted: Any) -> None:
    scripted.pieces = cut(CALLS, list(range(0, len(CALLS), 7)))
    async with (
        client(scripted) as api,
        api.responses.stream(model="m", input="?", tools=[WEATHER]) as stream,
    ):
        said = [event async for event in stream]
        final = await stream.get_final_response()
    assert [item.type for item in final.output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert final.output_text == "I look."
    calls = [item for item in final.output if item.type == "function_call"]
    assert [one.arguments for one in calls] == ['{"city":"Oslo"}', '{"city":"Rome"}']
    assert [one.call_id for one in calls] == ["call_0", "call_1"]
    added = [event.type for event in said].count("response.output_item.added")
    assert added == [event.type for event in said].count("response.output_item.done") == 4


async def test_a_cut_stream_raises_in_the_client(scripted: Any) -> None:
    scripted.pieces = [sse(delta({"content": "Pa"}), done=False)]
    scripted.broken = ApiError(502, "The replica died.", code="upstream_failed")
    async with client(scripted) as api:
        stream = await api.responses.create(model="m", input="?", stream=True)
        said: list[Any] = []

        async def listen() -> None:
            async for event in stream:
                said.append(event)  # noqa: PERF401  (a comprehension would lose them)

        with pytest.raises(openai.APIError, match="The replica died"):
            await listen()
    failed = said[-1]
    assert failed.type == "response.failed"
    assert failed.response.status == "failed"
    assert failed.response.error is not None
    assert failed.response.error.message == "The replica died."
    assert failed.response.output[0].status == "incomplete"


async def test_errors_have_openais_shape(scripted: Any) -> None:
    scripted.status = 400
    scripted.whole = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    async with client(scripted) as api:
        with pytest.raises(openai.BadRequestError) as refused:
            await api.responses.create(model="m", input="?")
        assert refused.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError, match="not stored") as stored:
            await api.responses.create(model="m", input="?", previous_response_id="resp_1")
        assert stored.value.param == "previous_response_id"
        with pytest.raises(openai.AuthenticationError):
            await api.with_options(api_key="other").responses.create(model="m", input="?")


async def test_logprobs_come_through(scripted: Any) -> None:
    one = {"token": "Pa", "logprob": -0.1, "bytes": [80, 97], "top_logprobs": []}
    scripted.whole = whole(
        {"role": "assistant", "content": "Pa"}, logprobs={"content": [one], "refusal": None}
    )
    async with client(scripted) as api:
        told = await api.responses.create(
            model="m", input="?", include=["message.output_text.logprobs"]
        )
    assert scripted.asked["logprobs"] is True
    part = told.output[0].content[0]  # type: ignore[union-attr]
    assert part.logprobs[0].logprob == -0.1  # type: ignore[union-attr]


def translated(body: dict[str, Any]) -> Any:
    dialect = DIALECTS["/v1/responses"]
    return dialect.request(json.dumps(body).encode(), request_id="req-1", now_s=0.0)


@given(
    st.sampled_from([TEXT, CALLS, TEXT.replace(b"\n\n", b"\r\n\r\n")]),
    st.lists(st.integers(0, 5_000), max_size=30),
)
def test_bytes_cut_anywhere_say_the_same(data: bytes, places: list[int]) -> None:
    translation = translated({"model": "m", "input": "?", "stream": True})
    at_once, in_pieces = translation.stream(), translation.stream()
    said = b"".join(in_pieces.feed(piece) for piece in cut(data, places)) + in_pieces.finish(None)
    assert said == at_once.feed(data) + at_once.finish(None)


@given(st.integers(0, len(CALLS)))
def test_every_stream_ends_told(end: int) -> None:
    """Wherever the replica dies, the last event says so; after [DONE] nothing can be cut."""
    stream = translated({"model": "m", "input": "?", "stream": True}).stream()
    said = events(stream.feed(CALLS[:end]) + stream.finish(None))
    assert said[-1]["type"] == ("response.completed" if end == len(CALLS) else "error")
    assert [event["sequence_number"] for event in said] == list(range(len(said)))
    assert stream.feed(b'data: {"choices":[]}\n\n') + stream.finish(None) == b""


def test_a_whole_answer_that_is_none_is_a_502() -> None:
    translation = translated({"model": "m", "input": "?"})
    for body in (b"<html>", b"[]", b'{"choices": []}'):
        with pytest.raises(ApiError) as error:
            translation.whole(body)
        assert error.value.status == 502
