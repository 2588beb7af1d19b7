"""An answer that is resumed equals the one that was not interrupted, bit for bit."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from default_model import SMOLLM2, needs_smollm2
from tests.serving.engine.fronts import FrontProcess, ask

pytestmark = needs_smollm2

STORY = "The history of the town begins with a river and"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
JSON = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontProcess]:
    """The default model, without a cache of prefixes: all that is resumed is computed anew."""
    log: Path = tmp_path_factory.mktemp("usage")
    argv = [sys.executable, "-m", "ridgeline", "serve", str(SMOLLM2), "--name", "m", "--port", "0",
            "--supervised", "--threads", "1", "--kv-cache", "100MB", "--no-prefix-caching",
            "--usage-log", str(log)]  # fmt: skip
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    front = FrontProcess(process)
    try:
        front.until("ready")
        yield front
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(20)
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


class Said:
    """A stream, read to its end."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.chunks = [one for one in events if one["choices"]]
        self.usage = next((one["usage"] for one in events if one.get("usage")), None)
        self.choices = [one["choices"][0] for one in self.chunks]
        self.ids = [token for one in self.choices for token in one.get("token_ids", ())]
        self.finish = [one["finish_reason"] for one in self.choices if one["finish_reason"]]
        self.text = "".join(map(_text, self.choices))
        self.calls = [call for one in self.choices for call in _calls(one)]

    def up_to(self, tokens: int) -> "Said":
        """What had been sent when the stream broke after this many tokens."""
        kept, seen = [], 0
        for chunk in self.chunks:
            seen += len(chunk["choices"][0].get("token_ids", ()))
            if seen > tokens:
                break
            kept.append(chunk)
        return Said(kept)


def _text(choice: dict[str, Any]) -> str:
    return choice.get("text") or choice.get("delta", {}).get("content") or ""


def _calls(choice: dict[str, Any]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = choice.get("delta", {}).get("tool_calls", [])
    return calls


def stream(replica: FrontProcess, request: dict[str, Any], **headers: str) -> Said:
    path = "/v1/chat/completions" if "messages" in request else "/v1/completions"
    body = {"model": "m", "stream": True, "return_token_ids": True,
            "stream_options": {"include_usage": True}, **request}  # fmt: skip
    reply = ask(replica.url + path, body, **headers)
    assert reply.status == 200, reply.body
    lines = [line[6:] for line in reply.body.decode().splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return Said([json.loads(line) for line in lines[:-1]])


CASES: dict[str, dict[str, Any]] = {
    "greedy": {"prompt": STORY, "max_tokens": 40, "temperature": 0},
    "seeded": {"prompt": STORY, "max_tokens": 40, "temperature": 1.0, "seed": 7, "top_p": 0.95},
    "penalties": {"prompt": STORY, "max_tokens": 40, "temperature": 0.8, "seed": 3,
                  "frequency_penalty": 0.5, "presence_penalty": 0.4, "repetition_penalty": 1.1},
    "stop string": {"prompt": STORY, "max_tokens": 60, "temperature": 0, "stop": ["founded by"]},
    "half characters": {"prompt": "Emoji: 😀 😃 😄 😁 😀 😃 😄 😁 😀 😃", "max_tokens": 30,
                        "temperature": 0},
    "guided json": {"messages": [{"role": "user", "content": "Invent a person."}],
                    "max_tokens": 60, "temperature": 1.0, "seed": 5, "response_format": JSON},
    "tool call": {"messages": [{"role": "user", "content": "What is the weather in Paris?"}],
                  "max_tokens": 60, "temperature": 0.7, "seed": 2, "tool_choice": "required",
                  "tools": [{"type": "function", "function": {
                      "name": "weather", "parameters": {
                          "type": "object", "properties": {"city": {"type": "string",
                                                                    "maxLength": 20}},
                          "required": ["city"], "additionalProperties": False}}}]},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_resumed_equals_what_was_not_interrupted(name: str, replica: FrontProcess) -> None:
    request = CASES[name]
    whole = stream(replica, request)
    assert len(whole.ids) > 4, whole.text
    assert whole.usage is not None
    assert whole.usage["completion_tokens"] == len(whole.ids)
    cuts = sorted({1, 2, len(whole.ids) // 3, len(whole.ids) // 2, len(whole.ids) - 1})
    for cut in cuts:
        first = whole.up_to(cut)
        assert len(first.ids) == cut, "a step is one event, with its ids and its text"
        rest = stream(replica, {**request, "resume": {"token_ids": first.ids}})
        assert first.ids + rest.ids == whole.ids
        assert first.text + rest.text == whole.text
        assert rest.finish == whole.finish
        assert _arguments(first.calls + rest.calls) == _arguments(whole.calls)
        assert rest.usage == whole.usage


def _arguments(calls: list[dict[str, Any]]) -> dict[int, str]:
    told: dict[int, str] = {}
    for call in calls:
        told[call["index"]] = told.get(call["index"], "") + call["function"]["arguments"]
    return told


def test_a_resumed_stream_says_no_role_and_no_prompt(replica: FrontProcess) -> None:
    request = CASES["guided json"]
    whole = stream(replica, request)
    opening = whole.chunks[0]
    assert opening["choices"][0]["delta"]["role"] == "assistant"
    assert opening["prompt_token_ids"]
    rest = stream(replica, {**request, "resume": {"token_ids": whole.ids[:3]}})
    assert all("role" not in choice["delta"] for choice in rest.choices)
    assert all("prompt_token_ids" not in chunk for chunk in rest.chunks)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"stream": False, "stream_options": None}, "stream only"),
        ({"n": 2}, "one answer"),
        ({"prompt": ["a", "b"]}, "one answer"),
        ({"logprobs": 1}, "logprobs"),
        ({"resume": {"token_ids": [10**6]}}, "ids are 0 to"),
        ({"resume": {"token_ids": [5, 6, 7]}, "max_tokens": 3}, "complete"),
        ({"resume": {"token_ids": [5, 2]}}, "complete"),  # 2 ends this model's answers
        ({"resume": {"token_ids": []}}, "resume.token_ids"),
    ],
)
def test_what_cannot_be_resumed_exactly_is_refused(
    more: dict[str, Any], why: str, replica: FrontProcess
) -> None:
    body = {"model": "m", "prompt": STORY, "stream": True, "max_tokens": 9,
            "resume": {"token_ids": [5]}, **more}  # fmt: skip
    reply = ask(replica.url + "/v1/completions", body)
    assert reply.status == 400
    assert why in reply.json()["error"]["message"]


def test_whole_answers_tell_ids_where_they_are_asked_for(replica: FrontProcess) -> None:
    body = {"model": "m", "prompt": STORY, "max_tokens": 5, "temperature": 0}
    plain = ask(replica.url + "/v1/completions", body).json()
    told = ask(replica.url + "/v1/completions", {**body, "return_token_ids": True}).json()
    assert "token_ids" not in plain["choices"][0]
    assert len(told["choices"][0]["token_ids"]) == 5
    assert len(told["choices"][0]["prompt_token_ids"]) == told["usage"]["prompt_tokens"]


def test_usage_is_logged_by_request_id_with_what_was_resumed(replica: FrontProcess) -> None:
    whole = stream(replica, CASES["greedy"], **{"X-Request-Id": "req-1"})
    stream(replica, {**CASES["greedy"], "resume": {"token_ids": whole.ids[:25]}},
           **{"X-Request-Id": "req-1~2"})  # fmt: skip
    assert whole.usage is not None
    for name in ("req-1", "req-1~2"):
        assert ask(f"{replica.url}/usage/{name}").json() == {
            "request_id": name,
            "prompt_tokens": whole.usage["prompt_tokens"],
            "cached_tokens": 0,
            "completion_tokens": 40,
            "finished": True,
        }
    assert ask(f"{replica.url}/usage/req-unknown").status == 404
