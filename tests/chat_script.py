"""A chat-completions replica's words, for tests that script one."""

import json
from itertools import pairwise
from typing import Any


def delta(said: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": said, "finish_reason": finish, "logprobs": None, **more}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice], "usage": None}


def call(index: int, arguments: str, name: str | None = None) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    head = {"id": f"call_{index}", "type": "function"} if name else {}
    return {"tool_calls": [{"index": index, **head, "function": function}]}


def usage(prompt: int, output: int, cached: int = 0) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def sse(*chunks: dict[str, Any], done: bool = True) -> bytes:
    events = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
    return b"".join(events) + (b"data: [DONE]\n\n" if done else b"")


def whole(message: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": finish, **more}
    return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage(7, 3, 2)}


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The same bytes in pieces."""
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


def events(told: bytes) -> list[dict[str, Any]]:
    """What a dialect's stream says, each event's name checked against its data."""
    said = []
    for event in told.decode().split("\n\n")[:-1]:
        name, data = event.split("\n")
        said.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {said[-1]['type']}"
    return said
