"""OpenAI's `POST /v1/responses` in front of chat completions.

The order of the events is OpenAI's: created, in progress, each item from added to done with its
parts and deltas in between, then completed, incomplete or failed. There is no `[DONE]`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ridgeline.serving.gateway.dialects.answer import (
    Answer,
    Block,
    ChatStream,
    Closed,
    Ended,
    Event,
    Failed,
    Grew,
    Kind,
    Opened,
    Usage,
)
from ridgeline.serving.gateway.dialects.responses_request import ResponsesRequest, chat_body
from ridgeline.serving.openai import ApiError, read

_ITEM_ID = {Kind.REASONING: "rs", Kind.TEXT: "msg", Kind.CALL: "fc"}
_PART = {Kind.REASONING: "reasoning_text", Kind.TEXT: "output_text"}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


@dataclass(frozen=True, slots=True)
class ResponsesDialect:
    """The Responses API."""

    def request(self, body: bytes, *, request_id: str, now_s: float) -> "ResponsesTranslation":
        """See `Dialect`."""
        asked = read(body, ResponsesRequest)
        return ResponsesTranslation(chat_body(asked, body), Shown(asked, request_id, now_s))

    def error(self, error: ApiError) -> tuple[int, bytes]:
        """See `Dialect`; the same shape as everywhere at OpenAI."""
        return int(error.status), msgspec.json.encode(error.body())

    def refusal(self, status: int, body: bytes) -> bytes:
        """See `Dialect`; a replica says it in this shape already."""
        del status
        return body

    def authorization(self, headers: Mapping[str, str]) -> str:
        """See `Dialect`."""
        return headers.get("Authorization", "")


@dataclass(frozen=True, slots=True)
class Shown:
    """What an answer repeats of its request, and the names of its parts."""

    asked: ResponsesRequest
    request_id: str
    now_s: float

    def name(self, kind: str, position: int | None = None) -> str:
        """An id that nothing else has: the request's, with what it names."""
        tail = self.request_id.removeprefix("req-")
        return f"{kind}_{tail}" if position is None else f"{kind}_{tail}_{position}"

    def response(self, status: str, answer: Answer, error: ApiError | None = None) -> Any:
        """The response object as it is by now."""
        asked = self.asked
        reason = _INCOMPLETE.get(answer.finish or "") if status == "incomplete" else None
        over = status != "in_progress"
        return {
            "id": self.name("resp"),
            "object": "response",
            "created_at": int(self.now_s),
            "status": status,
            "background": False,
            "error": {"code": _code(error), "message": error.message} if error else None,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "model": asked.model,
            "output": [self.item(block, answer) for block in answer.blocks] if over else [],
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": asked.reasoning.effort if asked.reasoning else None},
            "store": False,
            "temperature": 1.0 if asked.temperature is None else asked.temperature,
            "text": {"format": _format(asked)},
            "tool_choice": _choice(asked),
            "tools": [msgspec.to_builtins(tool) for tool in asked.tools or []],
            "top_p": 1.0 if asked.top_p is None else asked.top_p,
            "truncation": "disabled",
            "usage": _usage(answer.usage),
            "user": asked.user,
            "metadata": asked.metadata or {},
        }

    def item(self, block: Block, answer: Answer, status: str = "") -> dict[str, Any]:
        """An output item; its `status` follows from the answer unless it is given."""
        status = status or _item_status(block, answer)
        item_id = self.name(_ITEM_ID[block.kind], block.position)
        begun = status == "in_progress"
        head = {"id": item_id, "status": status}
        match block.kind:
            case Kind.TEXT:
                content = [] if begun else [self.part(block)]
                return {**head, "type": "message", "role": "assistant", "content": content}
            case Kind.REASONING:
                content = [] if begun else [self.part(block)]
                return {**head, "type": "reasoning", "summary": [], "content": content}
            case Kind.CALL:
                call_id = block.call_id or self.name("call", block.position)
                call = {"call_id": call_id, "name": block.name}
                arguments = "" if begun else block.text
                return {**head, "type": "function_call", **call, "arguments": arguments}

    def part(self, block: Block, *, empty: bool = False) -> dict[str, Any]:
        """The one content part of a message or a thought."""
        text = "" if empty else block.text
        if block.kind == Kind.REASONING:
            return {"type": _PART[block.kind], "text": text}
        logprobs = [] if empty else block.logprobs
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


@dataclass(frozen=True, slots=True)
class ResponsesTranslation:
    """One request to the Responses API."""

    body: bytes
    shown: Shown
    path: str = "/v1/chat/completions"

    def whole(self, body: bytes) -> bytes:
        """See `Translation`."""
        answer = Answer()
        answer.read(body)
        return msgspec.json.encode(self.shown.response(_status(answer), answer))

    def stream(self) -> "ResponsesStream":
        """See `Translation`."""
        return ResponsesStream(self.shown)


@dataclass(slots=True)
class ResponsesStream:
    """A response as it is made."""

    _shown: Shown
    _chat: ChatStream = field(default_factory=ChatStream)
    _said: int = 0  # events so far: each has its number

    def feed(self, data: bytes) -> bytes:
        """See `Stream`."""
        return b"".join([self._opening(), *map(self._event, self._chat.feed(data))])

    def finish(self, error: ApiError | None) -> bytes:
        """See `Stream`."""
        return b"".join([self._opening(), *map(self._event, self._chat.finish(error))])

    def _opening(self) -> bytes:
        if self._said:
            return b""
        begun = self._shown.response("in_progress", self._chat.answer)
        return self._say("response.created", response=begun) + self._say(
            "response.in_progress", response=begun
        )

    def _event(self, event: Event) -> bytes:
        match event:
            case Opened(block):
                return self._opened(block)
            case Grew(block, text, logprobs):
                return self._grew(block, text, logprobs)
            case Closed(block):
                return self._closed(block)
            case Ended():
                status = _status(self._chat.answer)
                response = self._shown.response(status, self._chat.answer)
                return self._say(f"response.{status}", response=response)
            case Failed(error):
                return self._failed(error)

    def _opened(self, block: Block) -> bytes:
        item = self._shown.item(block, self._chat.answer, "in_progress")
        said = self._say("response.output_item.added", output_index=block.position, item=item)
        if block.kind == Kind.CALL:
            return said
        part = self._shown.part(block, empty=True)
        return said + self._of(block, "response.content_part.added", content_index=0, part=part)

    def _grew(self, block: Block, text: str, logprobs: list[dict[str, Any]]) -> bytes:
        match block.kind:
            case Kind.TEXT:
                more: dict[str, Any] = {"content_index": 0, "delta": text, "logprobs": logprobs}
                return self._of(block, "response.output_text.delta", **more)
            case Kind.REASONING:
                return self._of(block, "response.reasoning_text.delta", content_index=0, delta=text)
            case Kind.CALL:
                return self._of(block, "response.function_call_arguments.delta", delta=text)

    def _closed(self, block: Block) -> bytes:
        text = block.text
        match block.kind:
            case Kind.CALL:
                told = {"name": block.name, "arguments": text}
                said = self._of(block, "response.function_call_arguments.done", **told)
            case Kind.TEXT:
                more: dict[str, Any] = {"text": text, "logprobs": block.logprobs}
                said = self._of(block, "response.output_text.done", content_index=0, **more)
            case Kind.REASONING:
                said = self._of(block, "response.reasoning_text.done", content_index=0, text=text)
        if block.kind != Kind.CALL:
            part = self._shown.part(block)
            said += self._of(block, "response.content_part.done", content_index=0, part=part)
        item = self._shown.item(block, self._chat.answer)
        return said + self._say("response.output_item.done", output_index=block.position, item=item)

    def _failed(self, error: ApiError) -> bytes:
        """OpenAI's two ways of saying it: some clients look for one, some for the other."""
        response = self._shown.response("failed", self._chat.answer, error)
        told = {"code": error.code, "message": error.message, "param": error.param}
        return self._say("response.failed", response=response) + self._say(
            "error", **told, error=error.body()["error"]
        )

    def _of(self, block: Block, event: str, /, **more: Any) -> bytes:
        item_id = self._shown.name(_ITEM_ID[block.kind], block.position)
        return self._say(event, item_id=item_id, output_index=block.position, **more)

    def _say(self, name: str, /, **more: Any) -> bytes:
        event = {"type": name, "sequence_number": self._said, **more}
        self._said += 1
        return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(event))


def _status(answer: Answer) -> str:
    return "incomplete" if answer.finish in _INCOMPLETE else "completed"


def _item_status(block: Block, answer: Answer) -> str:
    """An answer that was cut was cut in its last item."""
    cut = answer.finish in _INCOMPLETE or answer.is_open
    return "incomplete" if cut and block is answer.blocks[-1] else "completed"


def _code(error: ApiError) -> str:
    return "rate_limit_exceeded" if error.status == 429 else "server_error"


def _usage(usage: Usage | None) -> dict[str, Any] | None:
    """The tokens; null where the replica did not count them."""
    if usage is None:
        return None
    cached = {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0}
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": cached,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _format(asked: ResponsesRequest) -> Any:
    form = asked.text.format if asked.text else None
    if form is None or form.type != "json_schema":
        return {"type": form.type if form else "text"}
    return msgspec.to_builtins(form)


def _choice(asked: ResponsesRequest) -> Any:
    if asked.tool_choice is None:
        return "auto"
    return msgspec.to_builtins(asked.tool_choice)
