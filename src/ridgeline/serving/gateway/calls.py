"""What the gateway reads and changes of a request's body: as little as it can.

Every field it does not know goes to the replica byte for byte.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from ridgeline.serving.openai import read

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])
_options = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)

_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Call(msgspec.Struct):
    """The fields the gateway looks at; ApiError 400 (from `peek`) where they are wrong."""

    model: str
    stream: bool | None = None
    stream_options: msgspec.Raw = msgspec.Raw(b"null")
    n: _Count | None = None
    best_of: _Count | None = None
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    temperature: float | None = None
    seed: int | None = None
    user: str | None = None
    prompt: msgspec.Raw = msgspec.Raw(b"null")
    logprobs: msgspec.Raw = msgspec.Raw(b"null")
    return_token_ids: bool | None = None
    resume: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def wants_usage(self) -> bool:
        """Whether the client itself asked for a stream's usage."""
        return _asks(self.stream_options)

    @property
    def can_go_on(self) -> bool:
        """Whether an answer that is cut can go on elsewhere exactly as it would have."""
        odd = (bytes(self.logprobs) in (b"null", b"false"), bytes(self.resume) == b"null")
        return bool(self.stream) and self.choices == 1 and all(odd) and not self.return_token_ids

    @property
    def choices(self) -> int:
        """Answers that are generated for it, over all its prompts."""
        return max(1, self.n or 1, self.best_of or 1) * _prompts(self.prompt)

    def most_tokens(self, path: str) -> int | None:
        """The most that one answer may have, by the client; None where it does not say.

        Only chats know `max_completion_tokens`; which of the two counts there differs by engine.
        """
        if path == "/v1/completions":
            return self.max_tokens
        said = (self.max_completion_tokens, self.max_tokens)
        return max((one for one in said if one is not None), default=None)


def peek(body: bytes) -> Call:
    """The fields that decide where a request goes.

    Raises ApiError 400 where the body is not UTF-8, not JSON, not an object, or has no `model`.
    """
    return read(body, Call)


def with_model(body: bytes, model: str) -> bytes:
    """The body for a replica that knows the model by another name."""
    return _with(body, "model", msgspec.json.encode(model))


def with_most_tokens(body: bytes, tokens: int) -> bytes:
    """The body with a bound on its answer: somebody pays for it, and must know how much at most."""
    return _with(body, "max_tokens", b"%d" % tokens)


def with_usage(body: bytes) -> bytes:
    """The body of a stream, now asking for usage; other stream options stay as they are."""
    fields = _fields.decode(body)
    try:
        options = _options.decode(fields.get("stream_options", b"null")) or {}
    except msgspec.ValidationError:
        return body  # not an object: the replica says so better than we could
    options["include_usage"] = msgspec.Raw(b"true")
    fields["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
    return msgspec.json.encode(fields)


def with_ids(body: bytes, seed: int | None) -> bytes:
    """The body of a stream that another replica can go on with: token ids told, chance fixed."""
    fields = _fields.decode(body)
    fields["return_token_ids"] = msgspec.Raw(b"true")
    if seed is not None:
        fields["seed"] = msgspec.Raw(b"%d" % seed)
    return msgspec.json.encode(fields)


def _with(body: bytes, field: str, value: bytes) -> bytes:
    fields = _fields.decode(body)
    fields[field] = msgspec.Raw(value)
    return msgspec.json.encode(fields)


def _prompts(prompt: msgspec.Raw) -> int:
    """How many prompts there are: a list of ids is one, a list of texts or of such lists many."""
    text = bytes(prompt)
    if text[:1] != b"[" or (b'"' not in text and b"[" not in text[1:]):
        return 1
    return max(1, sum(bytes(one)[:1] in (b'"', b"[") for one in _list.decode(text)))


def _asks(options: msgspec.Raw) -> bool:
    try:
        return bytes((_options.decode(options) or {}).get("include_usage", b"")) == b"true"
    except msgspec.ValidationError:
        return False
