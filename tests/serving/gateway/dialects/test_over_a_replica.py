"""Both clients over Ridgeline's own replica: what is translated is what a strict server takes."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import openai
import pytest
from aiohttp import ClientSession, web
from tests.serving.engine.byte_model import write_byte_model
from tests.serving.engine.fronts import front_process

from ridgeline.serving.gateway.dialects import DIALECTS
from ridgeline.serving.openai import ApiError

CALL = '{"name": "add", "arguments": {"a": 1}}'
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    model = write_byte_model(tmp_path_factory.mktemp("bytes"))
    with front_process(model, max_model_len=2000) as process:
        process.until("ready")
        yield process.url


@pytest.fixture
async def url(replica: str) -> AsyncIterator[str]:
    async def relay(request: web.Request) -> web.StreamResponse:
        dialect = DIALECTS[request.path]
        try:
            asked = dialect.request(await request.read(), request_id="req-1", now_s=0.0)
        except ApiError as error:
            status, body = dialect.error(error)
            return web.Response(status=status, body=body, content_type="application/json")
        async with (
            ClientSession() as session,
            session.post(replica + asked.path, data=asked.body) as answer,
        ):
            if answer.status != 200:
                told = dialect.refusal(answer.status, await answer.read())
                return web.Response(
                    status=answer.status, body=told, content_type="application/json"
                )
            if answer.content_type != "text/event-stream":
                told = asked.whole(await answer.read())
                return web.Response(body=told, content_type="application/json")
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            stream = asked.stream()
            async for piece in answer.content.iter_any():
                await response.write(stream.feed(piece))
            await response.write(stream.finish(None))
            return response

    app = web.Application()
    for path in DIALECTS:
        app.router.add_post(path, relay)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def openai_client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)


def anthropic_client(url: str) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0)


FUNCTION: Any = {"type": "function", "name": "add", "parameters": PARAMETERS, "strict": False}


async def test_responses_whole_and_streamed(url: str) -> None:
    async with openai_client(url) as api:
        more: Any = {"model": "stub", "input": "cached say:hé 🙂", "temperature": 0.5}
        whole = await api.responses.create(**more)
        async with api.responses.stream(**more) as stream:
            async for _ in stream:
                pass
            streamed = await stream.get_final_response()
    for told in (whole, streamed):
        assert told.output_text == "hé 🙂"
        assert told.status == "completed"
        assert told.usage is not None
        assert told.usage.output_tokens == len("hé 🙂".encode()) + 1
        assert told.usage.input_tokens_details.cached_tokens == 3


async def test_responses_call_tools_over_two_turns(url: str) -> None:
    async with openai_client(url) as api:
        first = await api.responses.create(
            model="stub", input=f"say:{CALL}", tools=[FUNCTION], parallel_tool_calls=False
        )
        (call,) = first.output
        assert call.type == "function_call"
        assert (call.name, call.arguments) == ("add", '{"a": 1}')
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "2"}
        user = {"role": "user", "content": "say:two"}
        second = await api.responses.create(
            model="stub", input=[*first.output, output, user], tools=[FUNCTION]
        )
    assert second.output_text == "two"


async def test_messages_whole_and_streamed(url: str) -> None:
    ask: Any = {
        "model": "stub",
        "max_tokens": 50,
        "system": "be brief",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "say:hé 🙂"}]}],
    }
    async with anthropic_client(url) as api:
        whole = await api.messages.create(**ask)
        async with api.messages.stream(**ask) as stream:
            streamed = await stream.get_final_message()
        short = await api.messages.create(**{**ask, "max_tokens": 1})
        counted = await api.messages.count_tokens(
            model="stub", system="be brief", messages=ask["messages"]
        )
    for told in (whole, streamed):
        assert told.content[0].type == "text"
        assert told.content[0].text == "hé 🙂"
        assert told.stop_reason == "end_turn"
        assert told.usage.input_tokens == counted.input_tokens
    assert short.stop_reason == "max_tokens"


async def test_messages_use_tools_over_two_turns(url: str) -> None:
    tools: Any = [{"name": "add", "input_schema": PARAMETERS}]
    ask: Any = {"role": "user", "content": f"say:{CALL}"}
    async with anthropic_client(url) as api:
        async with api.messages.stream(
            model="stub", max_tokens=100, messages=[ask], tools=tools
        ) as stream:
            first = await stream.get_final_message()
        (use,) = first.content
        assert use.type == "tool_use"
        assert (use.name, use.input, first.stop_reason) == ("add", {"a": 1}, "tool_use")
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "2"}
        text = {"type": "text", "text": "say:two"}
        second = await api.messages.create(
            model="stub",
            max_tokens=100,
            tools=tools,
            messages=[
                ask,
                {"role": "assistant", "content": first.content},
                {"role": "user", "content": [result, text]},
            ],
        )
    assert second.content[0].type == "text"
    assert second.content[0].text == "two"


async def test_a_replica_that_fails_midway_is_told_by_both(url: str) -> None:
    ask: Any = [{"role": "user", "content": "late-fail say:ab"}]
    trip: Any = [{"role": "user", "content": "trip"}]
    async with openai_client(url) as api, anthropic_client(url) as other:
        said: Any = await api.responses.create(model="stub", input=ask, stream=True)
        told = await other.messages.create(model="stub", max_tokens=9, messages=ask, stream=True)
        while (await anext(said)).type != "response.output_text.delta":
            pass
        while (await anext(told)).type != "content_block_delta":
            pass
        await other.messages.create(model="stub", max_tokens=9, messages=trip)
        with pytest.raises(openai.APIError, match="told to fail"):
            [event async for event in said]
        with pytest.raises(anthropic.APIStatusError, match="told to fail"):
            [event async for event in told]


async def test_a_replicas_refusal_is_told_by_both(url: str) -> None:
    async with openai_client(url) as api:
        with pytest.raises(openai.NotFoundError, match="other"):
            await api.responses.create(model="other", input="x")
    async with anthropic_client(url) as other:
        ask: Any = [{"role": "user", "content": "x" * 3000}]
        with pytest.raises(anthropic.BadRequestError, match="maximum context length"):
            await other.messages.create(model="stub", max_tokens=9, messages=ask)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_stop_sequence_is_named(url: str, stream: bool) -> None:
    ask: Any = {"messages": [{"role": "user", "content": "say:one two END"}]}
    more: Any = {"model": "stub", "max_tokens": 50, "stop_sequences": ["x", " two"]}
    async with anthropic_client(url) as api:
        if stream:
            async with api.messages.stream(**more, **ask) as told:
                message = await told.get_final_message()
        else:
            message = await api.messages.create(**more, **ask)
    assert message.content[0].type == "text"
    assert message.content[0].text == "one"
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " two")
