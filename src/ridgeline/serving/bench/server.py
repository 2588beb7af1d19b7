"""One OpenAI-compatible server, as its client: what it serves, and one measured request at a time.

Called by `bench load` only. The clock is `time.perf_counter`, the one that `drive` uses.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp
import msgspec

from ridgeline.errors import SpecError
from ridgeline.serving.bench.sample import Answer
from ridgeline.serving.bench.sse import Piece, Stream, Usage, error_text

Api = Literal["chat", "completions"]
KEEP_ALIVE_S = 4.0  # below what servers keep (uvicorn: 5 s), so that no request meets a closed one
PROBE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Served:
    """A model the server offers, and its context length in tokens where it tells."""

    name: str
    max_tokens: int | None


@dataclass(slots=True)
class Seen:
    """A request in flight: what was seen of it so far."""

    sent_s: float
    token_times_s: list[float] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    finished: bool = False
    done: bool = False
    error: str = ""
    detail: str = ""

    def take(self, pieces: Iterable[Piece], at_s: float) -> None:
        """Note all pieces that one read brought: they came at the same moment."""
        for piece in pieces:
            if piece.content:
                self.token_times_s.append(at_s)
            if piece.usage is not None:
                self.usage = piece.usage
            if piece.error:
                self.error, self.detail = "error in stream", piece.error
            self.finished |= piece.finished
            self.done |= piece.done

    def answer(self, ended_s: float, origin_s: float) -> Answer:
        """The whole answer, its times counted from `origin_s`."""
        if not self.error and not (self.done or self.finished):
            self.error = "cut short"
        if not self.error and not self.token_times_s:
            self.error = "no tokens"
        details = self.usage.prompt_tokens_details
        return Answer(
            self.sent_s - origin_s,
            ended_s - origin_s,
            tuple(at_s - origin_s for at_s in self.token_times_s),
            self.usage.prompt_tokens,
            self.usage.completion_tokens,
            details.cached_tokens if details else None,
            self.error,
            self.detail,
        )


def base_url(url: str) -> str:
    """The server's root: "http://host:8000/v1/" and "host:8000" mean "http://host:8000"."""
    with_scheme = url if "://" in url else f"http://{url}"
    return with_scheme.rstrip("/").removesuffix("/v1")


def connect(timeout_s: float, api_key: str | None) -> aiohttp.ClientSession:
    """A session that opens as many connections as there are requests in flight."""
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        headers=headers,
    )


async def models(session: aiohttp.ClientSession, url: str) -> list[Served]:
    """What GET /v1/models lists. Raises SpecError: unreachable, refused, or not OpenAI's format."""
    timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
    try:
        async with session.get(f"{url}/v1/models", timeout=timeout) as response:
            status, body = response.status, await response.read()
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise SpecError(
            f'"{url}" is not a URL', where="URL", remedy="http://127.0.0.1:8000"
        ) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise SpecError(
            f"{url} cannot be reached ({_named(error)})",
            where="URL",
            remedy="ridgeline up, or the address of a running server",
        ) from error
    if status in (401, 403):
        raise SpecError(
            f"{url} answered {status}: {_message(body)}",
            where="--api-key",
            remedy="--api-key KEY, or the environment's RIDGELINE_API_KEY",
        )
    return _served(url, status, body)


def _served(url: str, status: int, body: bytes) -> list[Served]:
    if status >= 500:
        raise SpecError(
            f"{url} answered {status}: {_message(body)}",
            where="URL",
            remedy="again when the server is ready, or read its log",
        )
    try:
        listed = msgspec.json.decode(body)["data"]
        return [Served(str(row["id"]), row.get("max_model_len")) for row in listed]
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise SpecError(
            f"{url}/v1/models answered {status} and no list of models",
            where="URL",
            remedy="the root of an OpenAI-compatible server",
        ) from error


def choose(served: list[Served], wanted: str | None) -> Served:
    """The model to measure: the wanted one, or the only one. Raises SpecError with the list."""
    names = ", ".join(model.name for model in served) or "none"
    if wanted is None and len(served) == 1:
        return served[0]
    for model in served:
        if model.name == wanted:
            return model
    problem = (
        f"the server has {len(served)} models: {names}"
        if wanted is None
        else f'"{wanted}" is not served; there is: {names}'
    )
    remedy = f"--model {served[0].name}" if served else "a server with a model"
    raise SpecError(problem, where="--model", remedy=remedy)


@dataclass(frozen=True, slots=True)
class Server:
    """One model behind one API of one server. `ignore_eos` is vLLM's word for full lengths."""

    session: aiohttp.ClientSession
    url: str
    model: str
    api: Api = "chat"
    ignore_eos: bool = False

    async def count_tokens(self, text: str) -> int | None:
        """The tokens of a whole prompt with this text, template included; None if unknown.

        Asks /tokenize in vLLM's shape.
        """
        body: dict[str, Any] = {"model": self.model, **self._prompt(text)}
        try:
            async with self.session.post(
                f"{self.url}/tokenize", data=msgspec.json.encode(body)
            ) as response:
                found = msgspec.json.decode(await response.read())
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
            return None
        count = found.get("count") if isinstance(found, dict) else None
        return count if isinstance(count, int) else None

    async def send(self, prompt: str, output_tokens: int, origin_s: float) -> Answer:
        """Stream one answer and note when each piece came; failures are answers, not raised.

        Times are counted from `origin_s`. Sending includes opening a connection where none is
        free, as a user would.
        """
        body = self._body(prompt, output_tokens)
        seen = Seen(time.perf_counter())
        try:
            await self._stream(body, seen)
        except TimeoutError:
            seen.error = "timeout"
        except aiohttp.ClientConnectorError as error:
            seen.error, seen.detail = "no connection", _named(error)
        except aiohttp.ClientError as error:
            seen.error, seen.detail = "connection lost", _named(error)
        return seen.answer(time.perf_counter(), origin_s)

    async def _stream(self, body: bytes, seen: Seen) -> None:
        path = "/v1/chat/completions" if self.api == "chat" else "/v1/completions"
        async with self.session.post(f"{self.url}{path}", data=body) as response:
            if response.status != 200:
                seen.error = f"http {response.status}"
                seen.detail = _message(await response.read())
                return
            stream = Stream()
            async for data in response.content.iter_any():
                seen.take(stream.feed(data), time.perf_counter())

    def _prompt(self, text: str) -> dict[str, Any]:
        if self.api == "completions":
            return {"prompt": text}
        return {"messages": [{"role": "user", "content": text}]}

    def _body(self, prompt: str, output_tokens: int) -> bytes:
        body = {
            "model": self.model,
            **self._prompt(prompt),
            "max_tokens": output_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.ignore_eos:
            body["ignore_eos"] = True
        return msgspec.json.encode(body)


def _named(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _message(body: bytes) -> str:
    """What an error body says, in OpenAI's shape or any other, shortened."""
    try:
        said = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body[:200].decode(errors="replace").strip()
    error = said.get("error", said) if isinstance(said, dict) else said
    return error_text(error)[:200]
