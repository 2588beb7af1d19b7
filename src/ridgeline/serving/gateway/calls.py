"""What the gateway reads and changes of a request's body: as little as it can.

Every field it does not know goes to the replica byte for byte.
"""

import msgspec

from ridgeline.serving.openai import read

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_options = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


class Call(msgspec.Struct):
    """The three fields the gateway looks at; ApiError 400 (from `peek`) where they are wrong."""

    model: str
    stream: bool | None = None
    stream_options: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def wants_usage(self) -> bool:
        """Whether the client itself asked for a stream's usage."""
        return _asks(self.stream_options)


def peek(body: bytes) -> Call:
    """The fields that decide where a request goes.

    Raises ApiError 400 where the body is not UTF-8, not JSON, not an object, or has no `model`.
    """
    return read(body, Call)


def with_model(body: bytes, model: str) -> bytes:
    """The body for a replica that knows the model by another name."""
    fields = _fields.decode(body)
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)


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


def _asks(options: msgspec.Raw) -> bool:
    try:
        return bytes((_options.decode(options) or {}).get("include_usage", b"")) == b"true"
    except msgspec.ValidationError:
        return False
