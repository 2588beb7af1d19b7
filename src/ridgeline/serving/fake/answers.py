"""Answers of a fake replica on the wire: streamed or whole, chat or completion, and how they fail.

`server` makes an `Answer` for each request and hands it its generation. What an answer looks like
follows `serving.engine.stream`; a fault that a request met changes it here.
"""

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
from aiohttp import web

from ridgeline.serving.fake.engine import Generation
from ridgeline.serving.fake.faults import Fault
from ridgeline.serving.fake.metrics import Metrics
from ridgeline.serving.fake.tokens import decode
from ridgeline.serving.openai import ApiError

encode = msgspec.json.Encoder().encode
_HOLE = "\x00hole\x00"
_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
#: The longest piece of a stream that the fault "split" sends at once.
_PIECE_BYTES = 7


@dataclass(frozen=True, slots=True)
class Shape:
    """How an answer looks: of a chat or not, its model's name, and what it says beside text."""

    chat: bool
    model: str
    include_usage: bool
    token_ids: bool
    resumed: bool


class Answer:
    """One request's answer on its way. `die` ends the whole replica."""

    def __init__(
        self,
        shape: Shape,
        generation: Generation,
        metrics: Metrics,
        fault: Fault | None,
        die: Callable[[], None],
    ) -> None:
        self._shape = shape
        self._generation = generation
        self._metrics = metrics
        self._fault = fault
        self._die = die
        self._told = 0
        #: Choices of a completion whose prompt's ids are still to be told.
        told_before = shape.chat or shape.resumed
        self._silent = set() if told_before else {choice.index for choice in generation.choices}
        self._is_broken = False
        self._last_s = generation.arrived_s
        prefix = "chatcmpl" if shape.chat else "cmpl"
        self._head = {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": shape.model,
        }

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events up to `[DONE]`. Raises ApiError while nothing is sent yet."""
        response = web.StreamResponse(headers=_HEADERS)
        around = [self._around(choice.index) for choice in self._generation.choices]
        left = len(self._generation.choices)
        await self._break_off(request, response)
        while left and not self._is_broken:
            events = []
            for choice, token, finish in await self._arrivals():
                left -= finish is not None
                if self._shape.token_ids:
                    events.append(self._with_ids(choice, token, finish))
                    continue
                before, after = around[choice]
                events.append(before + encode(decode((token,))) + after)
                if finish is not None:
                    events.append(_sse(self._chunk(choice, None, finish)))
            if not response.prepared:
                await response.prepare(request)
                events.insert(0, self._opening())
            await self._write(response, b"".join(events))
            await self._break_off(request, response)
        if self._is_broken:
            return response
        end = b"data: [DONE]\n\n"
        if self._shape.include_usage and not self._meets("no-usage"):
            end = _sse(self._object(choices=[], usage=self.usage())) + end
        await self._write(response, end)
        self._metrics.e2e_s.observe(time.monotonic() - self._generation.arrived_s)
        return response

    async def whole(self, request: web.Request) -> web.Response:
        """The answer in one piece."""
        ids: list[list[int]] = [[] for _ in self._generation.choices]
        finishes: dict[int, str] = {}
        await self._break_off(request, None)
        while len(finishes) < len(ids):
            for choice, token, finish in await self._arrivals():
                ids[choice].append(token)
                if finish is not None:
                    finishes[choice] = finish
            await self._break_off(request, None)
        told = self._object(
            whole=True,
            choices=[self._choice(index, said, finishes[index]) for index, said in enumerate(ids)],
        )
        if self._shape.token_ids and self._shape.chat:
            told["prompt_token_ids"] = self._generation.choices[0].prompt
        if not self._meets("no-usage"):
            told["usage"] = self.usage()
        self._metrics.e2e_s.observe(time.monotonic() - self._generation.arrived_s)
        return web.Response(body=encode(told), content_type="application/json")

    def usage(self) -> dict[str, Any]:
        """OpenAI's count of tokens so far; a prompt counts once, whatever its n."""
        prompt = self._generation.prompt_tokens
        completion = self._generation.completion_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": self._generation.cached_tokens},
        }

    async def _arrivals(self) -> list[tuple[int, int, str | None]]:
        arrived = await self._generation.arrivals()
        now_s = time.monotonic()
        waited = self._metrics.inter_token_s if self._told else self._metrics.ttft_s
        waited.observe(now_s - self._last_s)
        self._last_s = now_s
        self._told += len(arrived)
        for _, _, finish in arrived:
            if finish is not None:
                self._metrics.finished[finish] += 1
        return arrived

    def _meets(self, *kinds: str) -> bool:
        return self._fault is not None and self._fault.kind in kinds

    async def _break_off(self, request: web.Request, response: web.StreamResponse | None) -> None:
        """Fail, where a fault says so after this many tokens; some faults never return."""
        fault = self._fault
        if fault is None or self._told < fault.after:
            return
        match fault.kind:
            case "die":
                self._die()
                await asyncio.Event().wait()  # in a test's process, until it is cut
            case "cut" if request.transport is not None:
                request.transport.abort()
                raise ConnectionResetError("cut on purpose")
            case "hang" | "stall":
                await asyncio.Event().wait()  # until the client leaves, which cancels
            case "event" | "malformed" if response is not None and response.prepared:
                error = ApiError(500, "The fake replica breaks this stream, as it was told to.")
                broken = b'data: {"choices": [{"delta"\n\n'
                await response.write(_sse(error.body()) if fault.kind == "event" else broken)
                self._is_broken = True

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        if not self._meets("split"):
            await response.write(data)
            return
        chance, start = Random(len(data)), 0
        while start < len(data):
            size = chance.randint(1, _PIECE_BYTES)
            await response.write(data[start : start + size])
            start += size
            await asyncio.sleep(0)

    def _opening(self) -> bytes:
        """The role of each choice, unless another replica has said it already."""
        if not self._shape.chat or self._shape.resumed:
            return b""
        events = []
        for choice in self._generation.choices:
            delta = {"role": "assistant", "content": ""}
            told = {"index": choice.index, "delta": delta, "finish_reason": None}
            chunk = self._object(choices=[told])
            if self._shape.token_ids:
                chunk["prompt_token_ids"] = choice.prompt
            events.append(_sse(chunk))
        return b"".join(events)

    def _with_ids(self, choice: int, token: int, finish: str | None) -> bytes:
        """A token's one event: its id, its text and the end arrive together or not at all."""
        chunk = self._chunk(choice, decode((token,)), finish)
        chunk["choices"][0]["token_ids"] = [token]
        if choice in self._silent:
            self._silent.remove(choice)
            chunk["choices"][0]["prompt_token_ids"] = self._generation.choices[choice].prompt
        return _sse(chunk)

    def _around(self, choice: int) -> tuple[bytes, bytes]:
        """An event's bytes before and after its text: made once, filled for every token."""
        before, _, after = _sse(self._chunk(choice, _HOLE, None)).rpartition(encode(_HOLE))
        return before, after

    def _chunk(self, choice: int, text: str | None, finish: str | None) -> dict[str, Any]:
        told: dict[str, Any] = {"index": choice, "logprobs": None, "finish_reason": finish}
        if self._shape.chat:
            told["delta"] = {} if text is None else {"content": text}
        else:
            told["text"] = text or ""
        chunk = self._object(choices=[told])
        if self._shape.include_usage:
            chunk["usage"] = None
        return chunk

    def _choice(self, index: int, ids: list[int], finish: str) -> dict[str, Any]:
        told: dict[str, Any] = {"index": index, "logprobs": None, "finish_reason": finish}
        if self._shape.chat:
            told["message"] = {"role": "assistant", "content": decode(ids), "refusal": None}
        else:
            told["text"] = decode(ids)
        if self._shape.token_ids:
            told["token_ids"] = ids
            if not self._shape.chat:
                told["prompt_token_ids"] = self._generation.choices[index].prompt
        return told

    def _object(self, *, whole: bool = False, **more: object) -> dict[str, Any]:
        kind = "text_completion"
        if self._shape.chat:
            kind = "chat.completion" if whole else "chat.completion.chunk"
        return {"id": self._head["id"], "object": kind, **self._head, **more}


def _sse(chunk: dict[str, Any]) -> bytes:
    return b"data: " + encode(chunk) + b"\n\n"
