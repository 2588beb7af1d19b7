"""What requests of both dialects share on their way to a chat completion."""

from typing import Any

import msgspec

from ridgeline.serving.openai import ApiError

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def fields_beside(body: bytes, known: frozenset[str]) -> dict[str, Any]:
    """The fields of a body that the dialect does not know: they go to the replica as they are.

    `body` was read before, so it is a JSON object.
    """
    fields = _fields.decode(body)
    return {name: value for name, value in fields.items() if name not in known}


def given(**fields: Any) -> dict[str, Any]:
    """The fields that say something."""
    return {name: value for name, value in fields.items() if value is not None}


def text_or_parts(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """One text stays a plain text, which every replica and template understands."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def text_part(text: str) -> dict[str, Any]:
    """Text in a message."""
    return {"type": "text", "text": text}


def image_part(url: str, detail: str | None = None) -> dict[str, Any]:
    """An image in a message, by its address or as a data: address."""
    return {"type": "image_url", "image_url": given(url=url, detail=detail)}


def call_part(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A tool call in an assistant's message."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def function_tool(
    name: str, description: str | None, parameters: Any, strict: bool | None
) -> dict[str, Any]:
    """A function the model may call."""
    function = given(name=name, description=description, parameters=parameters, strict=strict)
    return {"type": "function", "function": function}


def schema_format(
    name: str, schema: Any, strict: bool | None, description: str | None = None
) -> dict[str, Any]:
    """The format of an answer that follows a JSON schema."""
    told = given(name=name, schema=schema, strict=strict, description=description)
    return {"type": "json_schema", "json_schema": told}


def refused(param: str, problem: str, remedy: str) -> ApiError:
    """The 400 for what a chat completion cannot do."""
    return ApiError(400, f"{problem}; {remedy}.", param=param, code="unsupported_parameter")


def missing(param: str) -> ApiError:
    """The 400 for a field that has to be there."""
    return ApiError(400, f"Missing required parameter: {param}.", param=param)
