"""What a request may ask for, and that the grammar made of it takes the right texts."""

import json
import subprocess
import sys
import time
from typing import Any

import msgspec
import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from ridgeline.serving.engine.constraint import limits
from ridgeline.serving.engine.grammar import (
    check_grammar,
    response_grammar,
    tool_grammar,
)
from ridgeline.serving.engine.tool_calls import ToolCall, parse_tool_calls
from ridgeline.serving.openai import ApiError
from ridgeline.serving.openai.requests import NamedTool, ResponseFormat, Tool

WEATHER = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"city": {"enum": ["Paris", "Rome"]}},
}
TOOLS = [("get_weather", WEATHER), ("stop", None), ("find.any-thing_2", {"properties": {}})]


class Bytes:
    eos_token_id = 256
    bos_token_id = None
    special_token_ids = (256,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")

    def __call__(self, text: Any) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def taken(grammar: str | None, text: str) -> str:
    """ "whole" or "open" (the text may be the end, or go on), else where it broke."""
    assert grammar is not None
    check_grammar(grammar, param="test")
    matcher = LLMatcher(
        LLTokenizer(TokenizerWrapper(Bytes())), grammar, log_level=0, limits=limits()
    )
    for at, byte in enumerate(text.encode()):
        if not matcher.validate_tokens([byte]):
            return f"broke at {text[at:]}"
        matcher.consume_token(byte)
    if matcher.is_stopped():
        return "whole"
    return "open" if matcher.is_accepting() else "unfinished"


def wanted(value: dict[str, Any]) -> ResponseFormat:
    return msgspec.convert(value, ResponseFormat)


def by_schema(schema: Any, *, strict: bool | None = None) -> ResponseFormat:
    named = {"name": "answer", "schema": schema, "strict": strict}
    return wanted({"type": "json_schema", "json_schema": named})


def tools(*names: str) -> list[Tool]:
    return [
        msgspec.convert(
            {"type": "function", "function": {"name": name, "parameters": parameters}}, Tool
        )
        for name, parameters in TOOLS
        if not names or name in names
    ]


def named(name: str) -> NamedTool:
    return msgspec.convert({"type": "function", "function": {"name": name}}, NamedTool)


def test_text_needs_no_grammar() -> None:
    assert response_grammar(None) is None
    assert response_grammar(wanted({"type": "text"})) is None
    assert [tool_grammar(tools(), choice) for choice in (None, "auto", "none")] == [None] * 3


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ('{"a": [1, true, null, "x"], "b": {}}', "whole"),
        ('{\n  "a": 1\n}', "whole"),
        ("{", "unfinished"),
        ("[1]", "broke at [1]"),
        ('"x"', 'broke at "x"'),
        ("{" + " " * 40 + "}", "whole"),
        ("{" + " " * 41, "broke at  "),
    ],
)
def test_json_object_takes_any_object_and_little_white_space(text: str, outcome: str) -> None:
    assert taken(response_grammar(wanted({"type": "json_object"})), text) == outcome


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ('{"city": "Paris"}', "whole"),
        ('{"city":"Rome","days":3}', "whole"),
        ('{"city": "Oslo"}', 'broke at Oslo"}'),
        ('{"days": 3', 'broke at days": 3'),
        ('{"city": "Rome", "x', "broke at x"),
    ],
)
def test_a_schema_is_followed(text: str, outcome: str) -> None:
    assert taken(response_grammar(by_schema(WEATHER)), text) == outcome


@pytest.mark.parametrize("strict", [None, False])
def test_what_is_unknown_is_ignored_where_strictness_is_not_asked(strict: bool | None) -> None:
    schema = {"type": "array", "uniqueItems": True}
    assert taken(response_grammar(by_schema(schema, strict=strict)), "[1, 1]") == "whole"


def test_what_is_unknown_is_refused_where_strictness_is_asked() -> None:
    grammar = response_grammar(by_schema({"type": "array", "uniqueItems": True}, strict=True))
    assert grammar is not None
    with pytest.raises(ApiError, match="uniqueItems") as caught:
        check_grammar(grammar, param="response_format")
    assert (caught.value.status, caught.value.param) == (400, "response_format")


def test_a_schema_cannot_bring_its_own_compiler_options() -> None:
    schema = {"type": "object", "x-guidance": {"whitespace_pattern": "(a|b)+"}}
    grammar = response_grammar(by_schema(schema))
    assert taken(grammar, '{ "a": 1}') == "whole"
    assert taken(grammar, "{ab").startswith("broke")


def test_true_is_a_schema_too() -> None:
    assert taken(response_grammar(by_schema(True)), "[null]") == "whole"


WRONG: dict[str, tuple[ResponseFormat, str]] = {
    "no json_schema": (wanted({"type": "json_schema"}), "response_format.json_schema"),
    "no schema": (by_schema(None), "response_format.json_schema.schema"),
    "large": (
        by_schema({"enum": ["x" * 70_000]}),
        "response_format.json_schema.schema",
    ),
    "multiples": (
        by_schema({"properties": {"a": {"items": [{"multipleOf": 99_991}]}}}),
        "response_format.json_schema.schema",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_response_format_names_its_field(case: str) -> None:
    value, param = WRONG[case]
    with pytest.raises(ApiError) as caught:
        response_grammar(value)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize("kind", ["objects", "lists"])
def test_a_schema_that_is_too_deep_is_refused_before_anything_walks_it(kind: str) -> None:
    deep: Any = {}
    for _ in range(50_000):
        deep = {"items": deep} if kind == "objects" else [deep]
    # Not by msgspec, whose own limit is lower: the cap must not depend on it.
    value = by_schema({})
    assert value.json_schema is not None
    value.json_schema.schema = {"enum": [deep]}
    with pytest.raises(ApiError, match="nested over 100 deep"):
        response_grammar(value)


PARIS = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
STOP = '{"name": "stop", "arguments": {}}'


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (PARIS, "open"),
        (STOP, "open"),
        (f"{PARIS}\n{STOP}", "open"),
        ("\n".join([STOP] * 16), "whole"),
        ('{"name": "find.any-thing_2", "arguments": {"a": 1}}', "open"),
        ('{"name": "other"', 'broke at other"'),
        ('{"name": "stop", "arguments": {"a', 'broke at "a'),
        ('{"name": "get_weather", "arguments": {"city": "Oslo', "broke at Oslo"),
        ("Sure", "broke at Sure"),
    ],
)
def test_required_takes_calls_of_any_tool(text: str, outcome: str) -> None:
    grammar = tool_grammar(tools(), "required")
    assert taken(grammar, text) == outcome
    if outcome in ("open", "whole"):
        calls = parse_tool_calls(text, [name for name, _ in TOOLS])
        assert calls is not None
        assert len(calls) == len(text.splitlines())


def test_calls_that_must_not_be_parallel_are_one() -> None:
    assert taken(tool_grammar(tools(), "required", parallel=False), PARIS) == "whole"
    assert taken(tool_grammar(tools("stop"), "required", parallel=False), STOP) == "whole"


def test_a_named_function_is_called_once() -> None:
    grammar = tool_grammar(tools(), named("stop"))
    assert taken(grammar, STOP) == "whole"
    assert taken(grammar, PARIS).startswith("broke at get_weather")


def test_what_the_grammar_makes_is_what_is_read_back() -> None:
    assert parse_tool_calls(PARIS, ["get_weather"]) == [
        ToolCall("get_weather", '{"city": "Paris"}')
    ]


@pytest.mark.parametrize(
    ("given", "choice", "param"),
    [
        ([], "required", "tools"),
        (None, named("stop"), "tools"),
        (tools(), named("other"), "tool_choice.function.name"),
    ],
)
def test_a_wrong_tool_choice_names_its_field(given: Any, choice: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        tool_grammar(given, choice)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_tools_have_a_size_together() -> None:
    large = tools("find.any-thing_2") * 10
    for tool in large:
        tool.function.parameters = {"properties": {"a": {"const": "x" * 30_000}}}
    with pytest.raises(ApiError, match="larger than") as caught:
        tool_grammar(large, "required")
    assert caught.value.param == "tools"
    assert tool_grammar(large[:8], "required") is not None


def test_wrong_parameters_name_their_tool() -> None:
    wrong = tools()
    wrong[2].function.parameters = {"type": "string"}
    with pytest.raises(ApiError, match="of type object") as caught:
        tool_grammar(wrong, "required")
    assert caught.value.param == "tools[2].function.parameters"
    assert tool_grammar(wrong, named("stop")) is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "zzz"},
        {"$ref": "#"},
        {"type": "string", "pattern": "("},
        {"allOf": [{"type": "string", "pattern": f".*[{c}].{{30}}"} for c in "abcdefgh"]},
        False,
    ],
)
def test_what_cannot_be_used_is_refused_in_bounded_time(schema: Any) -> None:
    grammar = response_grammar(by_schema(schema))
    assert grammar is not None
    began_s = time.process_time()
    with pytest.raises(ApiError, match=r"cannot be used: \S") as caught:
        check_grammar(grammar, param="response_format")
    assert time.process_time() - began_s < 5
    assert len(caught.value.message) < 400


def test_the_front_needs_no_torch_and_a_plain_request_no_llguidance() -> None:
    program = """
import sys
from ridgeline.serving.engine import grammar, tool_calls
assert "llguidance" not in sys.modules
grammar.check_grammar('{"grammars": [{"json_schema": {}}]}', param="")
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_grammar_is_plain_json_for_the_wire() -> None:
    grammar = response_grammar(by_schema({"const": "\ud800 ☃"}))
    assert grammar is not None
    assert grammar.isascii()
    assert json.loads(grammar)
