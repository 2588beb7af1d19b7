"""What every dialect offers: a request goes in as chat completions, the answer comes back as asked.

A dialect is another API in front of `/v1/chat/completions`. Sans I/O: bytes in, bytes out, time
and ids are passed in. The proxy calls `request` once, then either `whole` or `stream`.
"""

from collections.abc import Mapping
from typing import Protocol

from ridgeline.serving.openai import ApiError


class Stream(Protocol):
    """One answer's event stream in the dialect, made from the relayed chat events as they come."""

    def feed(self, data: bytes) -> bytes:
        """The dialect's events for some bytes of the chat stream, which may be cut anywhere."""
        ...

    def finish(self, error: ApiError | None) -> bytes:
        """What is left to say once no more bytes come; `error` is why there are no more.

        b"" where the end was told already. A chat stream that ended without `[DONE]` and without
        an `error` is told as an error too: an answer that was cut never looks complete.
        """
        ...


class Translation(Protocol):
    """One request, translated. `path` is where `body` goes at the replica."""

    @property
    def path(self) -> str:
        """The replica's endpoint."""
        ...

    @property
    def body(self) -> bytes:
        """The body for the replica; a stream asks for its usage."""
        ...

    def whole(self, body: bytes) -> bytes:
        """A whole 200 answer of the replica in the dialect.

        Raises ApiError 502 where it is not what the endpoint has to answer.
        """
        ...

    def stream(self) -> Stream:
        """The filter for a streamed 200 answer; one for each attempt."""
        ...


class Dialect(Protocol):
    """An API that is translated."""

    def request(self, body: bytes, *, request_id: str, now_s: float) -> Translation:
        """A client's request for a replica. `now_s` is Unix time, for answers that say it.

        Raises ApiError 400 for what is wrong, or cannot be done by a chat completion.
        """
        ...

    def error(self, error: ApiError) -> tuple[int, bytes]:
        """The status and body of an answer that is not 200, in the API's own shape."""
        ...

    def refusal(self, status: int, body: bytes) -> bytes:
        """A replica's own answer that is not 200, in the API's own shape."""
        ...

    def authorization(self, headers: Mapping[str, str]) -> str:
        """The key as `Bearer KEY`, wherever the API's clients put it; "" where there is none."""
        ...
