"""From `response_format` and `tools` to a grammar that the engine holds the model to.

Called by the HTTP front: no torch here, and llguidance only once a grammar is checked. The
engine compiles the same text in `constraint`. Why llguidance, and which forms were chosen:
docs/decisions/0008-constrained-output.md.

A grammar is llguidance's JSON form, a list of named parts. What a user gives goes in as a JSON
schema only, never as grammar text, and `schema_limits` judges it before a compiler does.
"""

import functools
import json
import time
from collections.abc import Sequence
from typing import Any

from ridgeline.serving.engine.schema_limits import check_schema
from ridgeline.serving.openai import ApiError
from ridgeline.serving.openai.requests import NamedTool, ResponseFormat, Tool

MAX_CALLS = 16
MAX_TOOLS_BYTES = 262_144
MAX_COMPILE_S = 1.0

# A model that is unsure likes to write white space for ever; a line break and a deep indent is
# the most that readable JSON needs in one place.
_WHITESPACE = r"[ \n\t\r]{1,40}"

Schema = dict[str, Any] | bool


def response_grammar(wanted: ResponseFormat | None) -> str | None:
    """The grammar of a whole answer; None where any text will do.

    A schema that is not `strict` may use keywords llguidance does not know; they are ignored,
    as OpenAI's best effort does. Raises ApiError 400 where the schema is missing or too large.
    """
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return _grammar({"json_schema": _options({"type": "object"}, strict=True)})
    param = "response_format.json_schema"
    if wanted.json_schema is None or wanted.json_schema.schema is None:
        field = param if wanted.json_schema is None else f"{param}.schema"
        raise ApiError(400, f"Missing required parameter: {field}.", param=field)
    schema = wanted.json_schema.schema
    _check_cost(schema, f"{param}.schema")
    return _grammar({"json_schema": _options(schema, strict=wanted.json_schema.strict is True)})


def tool_grammar(
    tools: Sequence[Tool] | None, choice: str | NamedTool | None, *, parallel: bool = True
) -> str | None:
    r"""The grammar of an answer that has to be tool calls; None where it need not be.

    An answer is `{"name": "f", "arguments": {...}}`, spaced like that; where any function may
    be called (`choice` "required") and `parallel` calls are allowed, up to `MAX_CALLS` of them,
    one a line. `tool_calls` reads it back. Raises ApiError 400 for a function that is not among
    the tools, a schema that is too large, or parameters that are no object.
    """
    if choice in (None, "none", "auto"):
        return None
    allowed = _allowed(tools or [], choice)
    more = MAX_CALLS - 1 if choice == "required" and parallel else 0
    lines = [
        f'start: call ("\\n" call){{0,{more}}}' if more else "start: call",
        "call: " + " | ".join(f"call_{at}" for at, _ in allowed),
    ]
    for at, tool in allowed:
        head = json.dumps(f'{{"name": "{tool.function.name}", "arguments": ')
        lines.append(f'call_{at}: {head} @arguments_{at} "}}"')
    parts = [
        {"name": f"arguments_{at}", "json_schema": _parameters(tool, at)} for at, tool in allowed
    ]
    grammar = _grammar({"name": "calls", "lark_grammar": "\n".join(lines)}, *parts)
    if len(grammar) > MAX_TOOLS_BYTES:
        raise ApiError(400, f"The tools are larger than {MAX_TOOLS_BYTES} bytes.", param="tools")
    return grammar


def check_grammar(grammar: str, *, param: str) -> None:
    """Raises ApiError 400 with the reason where a grammar cannot be used.

    Compiles it against single bytes, whatever the model's vocabulary. Takes milliseconds for an
    honest schema, a second for a hostile one: call it in a thread, it lets others run. What
    takes more than `MAX_COMPILE_S` of processor time is refused, since the engine, which has to
    compile it again, would make everyone wait.
    """
    from llguidance import LLMatcher  # a cold import of 45 ms that plain requests do not need

    from ridgeline.serving.engine.constraint import limits, reason

    vocabulary = _bytes_only()
    began_s = time.thread_time()
    matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=limits())
    if not matcher.is_error():
        matcher.compute_bitmask()  # only this finds a schema that nothing satisfies
    if matcher.is_error():
        raise ApiError(400, f"The schema cannot be used: {reason(matcher)}", param=param)
    if time.thread_time() - began_s > MAX_COMPILE_S:
        raise ApiError(400, "The schema cannot be used: it is too complex.", param=param)


def _grammar(*parts: dict[str, Any]) -> str:
    return json.dumps({"grammars": parts})


def _options(schema: Schema, *, strict: bool) -> Schema:
    """The schema with our options in it, in place of any that came with it."""
    options = {"whitespace_pattern": _WHITESPACE, "lenient": not strict, "coerce_one_of": True}
    whole = schema if isinstance(schema, dict) else {"allOf": [schema]}
    return {**whole, "x-guidance": options}


def _allowed(tools: Sequence[Tool], choice: str | NamedTool | None) -> list[tuple[int, Tool]]:
    if not tools:
        raise ApiError(400, "A tool has to be called, but there are no tools.", param="tools")
    if not isinstance(choice, NamedTool):
        return list(enumerate(tools))
    name = choice.function.name
    allowed = [(at, tool) for at, tool in enumerate(tools) if tool.function.name == name]
    if not allowed:
        known = ", ".join(tool.function.name for tool in tools)
        problem = f"The function {name!r} is not among the tools: {known}."
        raise ApiError(400, problem, param="tool_choice.function.name")
    return allowed[:1]


def _parameters(tool: Tool, at: int) -> Schema:
    """The schema of a function's arguments, which are an object always."""
    param = f"tools[{at}].function.parameters"
    schema = tool.function.parameters
    if schema is None:
        schema = {"type": "object", "additionalProperties": False}
    _check_cost(schema, param)
    if schema.get("type", "object") != "object":
        raise ApiError(400, "A function's parameters have to be of type object.", param=param)
    return _options({**schema, "type": "object"}, strict=tool.function.strict is True)


def _check_cost(schema: Schema, param: str) -> None:
    try:
        check_schema(schema)
    except ValueError as error:
        raise ApiError(400, str(error), param=param) from None


@functools.cache
def _bytes_only() -> Any:
    """A vocabulary of the 256 bytes and an end: what any tokenizer can be made of."""
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Bytes()))


class _Bytes:
    eos_token_id = 256
    bos_token_id = None
    special_token_ids = (256,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)
