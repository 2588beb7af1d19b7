"""What a replica's refusal says, in whichever of the usual shapes."""

import msgspec


class _Error(msgspec.Struct):
    message: str = ""


class _Failure(msgspec.Struct):
    error: _Error | str | None = None
    message: str = ""
    detail: str = ""


def message_of(body: bytes) -> str:
    """What an error body says, for our record only: the client gets it untouched."""
    try:
        failure = msgspec.json.decode(body, type=_Failure)
    except (msgspec.DecodeError, RecursionError):
        return body[:300].decode(errors="replace")
    error = failure.error.message if isinstance(failure.error, _Error) else failure.error
    return error or failure.message or failure.detail or "no message"
