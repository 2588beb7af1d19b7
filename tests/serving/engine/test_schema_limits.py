"""Small schemas that would keep the compiler busy for minutes are refused; honest ones are not."""

import time
from typing import Any

import pytest

from ridgeline.serving.engine.schema_limits import check_schema


def pattern(letter: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f".*{letter}.{{30}}"}


def chain(length: int, link: Any) -> dict[str, Any]:
    """Definitions, each with a pattern and a way on to the next."""
    definitions: dict[str, Any] = {
        f"d{at}": {**pattern("x"), **link(f"#/$defs/d{at + 1}")} for at in range(length)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{length}": {}}}


NINE = [pattern(letter) for letter in "abcdefghi"]
DEEP: Any = {}
for _ in range(120):
    DEEP = {"not": DEEP}

REFUSED: dict[str, tuple[Any, str]] = {
    "deep": (DEEP, "nested over 100 deep"),
    "large": ({"const": "x" * 65_536}, "larger than 65536 bytes"),
    "one multiple": ({"multipleOf": 10_007}, "common multiple"),
    "infinite multiple": ({"multipleOf": float("inf")}, "common multiple"),
    "multiples": (
        {
            "anyOf": [
                {"multipleOf": 97},
                {"properties": {"a": {"multipleOf": 1.03}}},
                {"multipleOf": 7},
            ]
        },
        "common multiple",
    ),
    "patternProperties": (
        {"anyOf": [{"patternProperties": {f"{at}{side}": {} for at in range(9)}} for side in "ab"]},
        "over 16 patternProperties",
    ),
    "allOf": ({"properties": {"a": {"allOf": NINE}}}, "combines over 8"),
    "allOf of properties": (
        {"allOf": [{"properties": {"a": one}} for one in NINE]},
        "combines over 8",
    ),
    "choice beside": ({**pattern("z"), "anyOf": NINE[:8]}, "combines over 8"),
    "choices in choices": (
        {"allOf": [{"anyOf": NINE[:5]}, {"oneOf": NINE[5:]}]},
        "combines over 8",
    ),
    "chained references": (chain(9, lambda to: {"$ref": to}), "combines over 8"),
    "chained choices": (chain(9, lambda to: {"anyOf": [{"$ref": to}]}), "combines over 8"),
    "long chain": (
        chain(600, lambda to: {"allOf": [{"items": {"$ref": to}}]}),
        "chained too deeply",
    ),
    "escaped reference": (
        {**pattern("z"), "$ref": "#/%24defs/a~1b/0", "$defs": {"a/b": [{"anyOf": NINE[:8]}]}},
        "combines over 8",
    ),
    "foreign reference": ({"$ref": "file:///etc/hostname"}, "Only references like"),
    "anchor": ({"$ref": "#there", "$defs": {"a": {"$anchor": "there"}}}, "Only references like"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_might_cost_too_much_is_refused_at_once(case: str) -> None:
    schema, problem = REFUSED[case]
    began_s = time.process_time()
    with pytest.raises(ValueError, match=problem):
        check_schema(schema)
    assert time.process_time() - began_s < 1


ACCEPTED: dict[str, Any] = {
    "true": True,
    "prices": {
        "properties": {"a": {"multipleOf": 0.01}, "b": {"multipleOf": 5}, "c": {"multipleOf": 100}}
    },
    "fifty patterns apart": {
        "properties": {f"p{at}": pattern("a") for at in range(50)},
        "anyOf": [{"required": ["p1"]}, {"required": ["p2"]}],
    },
    "a pattern of many": {"anyOf": NINE},
    "eight patterns combined": {"allOf": NINE[:8]},
    "a recursive tree": {
        "$defs": {
            "node": {
                "properties": {"at": pattern("a"), "under": {"items": {"$ref": "#/$defs/node"}}}
            }
        },
        "$ref": "#/$defs/node",
    },
    "itself": {"$ref": "#"},
    "nothing there": {"$ref": "#/$defs/a/b/7"},
    "properties with a keyword's name": {
        "properties": {
            name: {"type": "string"}
            for name in (
                "$ref",
                "allOf",
                "anyOf",
                "pattern",
                "format",
                "multipleOf",
                "patternProperties",
            )
        }
    },
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_honest_schemas_pass(case: str) -> None:
    check_schema(ACCEPTED[case])
