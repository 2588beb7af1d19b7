"""From a request's bytes to a checked value, or to the 400 that says what is wrong and where."""

import functools
import json
import math
import re
from typing import Any, TypeVar

import msgspec

from ridgeline.serving.openai.errors import ApiError
from ridgeline.serving.openai.requests import Generating, Refused

R = TypeVar("R", bound=msgspec.Struct)

_AT = re.compile(r" - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_INSTEAD = {
    "functions": "send `tools` instead",
    "function_call": "send `tool_choice` instead",
    "guided_json": "send `response_format` with type json_schema instead",
    "structured_outputs": "send `response_format` instead",
}


def read(body: bytes, into: type[R]) -> R:
    """A request's body as a value of type `into`.

    Raises `ApiError` 400 with the field at fault in `param` where one can be named: bytes that
    are not UTF-8, broken JSON, a missing field, a wrong type, a value out of range, a field
    that is understood but cannot be honoured.
    """
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise ApiError(400, f"The body is not UTF-8: byte {error.start} is wrong.") from None
    try:
        request: R = _decoder(into).decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    except msgspec.DecodeError as error:
        raise _not_json(body, str(error)) from None
    except RecursionError:
        raise ApiError(400, "The body is nested too deeply.", code="invalid_json") from None
    _refuse(request)
    return request


@functools.cache
def _decoder(into: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(into)


def _invalid(problem: str) -> ApiError:
    """The complaint of msgspec in our words: "Expected `float` <= 2.0 - at `$.temperature`"."""
    at = _AT.search(problem)
    path = at["path"] if at else ""
    if missing := _MISSING.match(problem):
        param = f"{path}.{missing['field']}" if path else missing["field"]
        return ApiError(400, f"Missing required parameter: {param}.", param=param)
    if not path:
        return ApiError(400, f"The body has to be a JSON object. {problem}.")
    what = problem[: at.start()] if at else problem
    return ApiError(
        400, f"Invalid value for {path}: {what[0].lower()}{what[1:]}.", param=path or None
    )


def _not_json(body: bytes, problem: str) -> ApiError:
    """Broken JSON; where only NaN or an infinity breaks it, the field is named."""
    try:
        param = _not_finite(json.loads(body), "")
    except (ValueError, RecursionError):
        param = None
    if param is None:
        return ApiError(400, f"The body is not valid JSON: {problem}.", code="invalid_json")
    return ApiError(400, f"Invalid value for {param}: it has to be a finite number.", param=param)


def _not_finite(value: object, path: str) -> str | None:
    """The path of the first number in `value` that JSON has no word for."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    inside: list[tuple[str, object]] = []
    if isinstance(value, dict):
        inside = [(f"{path}.{key}" if path else key, item) for key, item in value.items()]
    elif isinstance(value, list):
        inside = [(f"{path}[{place}]", item) for place, item in enumerate(value)]
    return next((found for name, item in inside if (found := _not_finite(item, name))), None)


def _refuse(request: msgspec.Struct) -> None:
    """400 for a field that would change the answer and that is not supported."""
    if not isinstance(request, Generating):
        return
    for field in _refused(type(request)):
        if getattr(request, field) not in (None, "", [], {}):
            remedy = _INSTEAD.get(field, "leave it out")
            raise ApiError(
                400,
                f"{field} is not supported here; {remedy}.",
                param=field,
                code="unsupported_parameter",
            )


@functools.cache
def _refused(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(f.name for f in msgspec.structs.fields(kind) if f.type is Refused)
