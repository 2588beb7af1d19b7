"""The admin API's own description, made from the types that its bodies are checked with."""

import re
import zoneinfo
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

import ridgeline
from ridgeline.serving.gateway.admin_wire import Wire


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be asked: `does` names the method that answers, `needs` the right."""

    method: str
    path: str
    does: str
    summary: str
    needs: str
    answer: type[msgspec.Struct]
    status: int = 200
    query: type[Wire] | None = None
    body: type[Wire] | None = None


_ERRORS = {
    400: "A field is wrong; `param` names it.",
    401: "There is no key, or none that is known.",
    403: "The key may not do this.",
    404: "There is none of that name.",
    409: "What is there does not allow it.",
    413: "The body is too large.",
    503: "The database cannot be asked now.",
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_REF = "#/components/schemas/{name}"


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these operations."""
    operations = list(operations)
    types = {one for o in operations for one in (o.answer, o.body) if one is not None}
    _, schemas = msgspec.json.schema_components(
        sorted(types, key=lambda one: one.__name__), ref_template=_REF
    )
    schemas["Error"] = _ERROR
    if budget := schemas.get("Budget"):
        budget["properties"]["timezone"]["enum"] = sorted(zoneinfo.available_timezones())
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ridgeline gateway: tenants, keys, usage",
            "version": ridgeline.__version__,
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(one: Operation) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": one.does,
        "summary": one.summary,
        "parameters": [*_in_path(one.path), *_in_query(one.query)],
        "responses": {
            str(one.status): _answer("Done.", _ref(one.answer.__name__)),
            **{str(status): _answer(text, _ref("Error")) for status, text in _ERRORS.items()},
        },
    }
    if one.body is not None:
        content = {"application/json": {"schema": _ref(one.body.__name__)}}
        told["requestBody"] = {"required": True, "content": content}
    return told


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, "maxLength": 63},
        }
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _in_query(query: type[Wire] | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    (_,), schemas = msgspec.json.schema_components([query], ref_template=_REF)
    properties = schemas[query.__name__]["properties"]
    return [{"name": name, "in": "query", "schema": one} for name, one in properties.items()]


def _answer(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REF.format(name=name)}
