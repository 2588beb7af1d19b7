"""What a client's JSON schema may cost, judged before a compiler reads it. Called by `grammar`.

llguidance bounds most of its work by itself, and these limits stand where it does not: some
small schemas keep it busy for minutes (measured: docs/decisions/0008-constrained-output.md).
Nearly all honest schemas are far below them.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from json import dumps
from typing import Any
from urllib.parse import unquote

MAX_BYTES = 65_536
MAX_DEPTH = 100
MAX_COMBINED_PATTERNS = 8
MAX_PATTERN_PROPERTIES = 16
MAX_MULTIPLE_OF = 10_000


def check_schema(schema: Any) -> None:
    """Raises ValueError, with the limit, for a schema that might cost too much."""
    _check_depth(schema)
    if len(dumps(schema)) > MAX_BYTES:
        raise ValueError(f"The schema is larger than {MAX_BYTES} bytes.")
    nodes = list(_nodes(schema))
    _check_multiples(nodes)
    if sum(len(_mapping(node.get("patternProperties"))) for node in nodes) > MAX_PATTERN_PROPERTIES:
        raise ValueError(f"The schema has over {MAX_PATTERN_PROPERTIES} patternProperties.")
    _Patterns(schema).check(nodes)


def _check_depth(schema: Any) -> None:
    """Level by level, since depth is what recursion could not bear."""
    level = [schema]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return
    raise ValueError(f"The schema is nested over {MAX_DEPTH} deep.")


def _check_multiples(nodes: list[dict[str, Any]]) -> None:
    """Numbers divisible by m need an automaton of m states; several, of their least multiple's."""
    values = {abs(node["multipleOf"]) for node in nodes if _is_number(node.get("multipleOf"))}
    too_large = max(values, default=0) > MAX_MULTIPLE_OF
    if too_large or math.lcm(*(_whole(value) for value in values)) > MAX_MULTIPLE_OF:
        raise ValueError(f"The schema's multipleOf have no common multiple to {MAX_MULTIPLE_OF}.")


def _whole(value: float) -> int:
    """The multiple without its decimal places, which cost nothing: 1.5 counts as 3."""
    return Fraction(str(value)).numerator or 1


class _Patterns:
    """Bounds how many regular expressions one string may have to satisfy at once.

    Whether an intersection is empty takes time exponential in its size. Where a schema's parts
    are combined (allOf; a choice or a reference beside other keywords) and more than one part
    has regular expressions, all of theirs are counted, though not all may meet.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._known: dict[int, int] = {}

    def check(self, nodes: list[dict[str, Any]]) -> None:
        """Raises ValueError where too many may meet, or references lead too far."""
        try:
            too_many = any(self._too_many(node) for node in nodes)
        except RecursionError:
            raise ValueError("The schema's references are chained too deeply.") from None
        if too_many:
            problem = f"The schema combines over {MAX_COMBINED_PATTERNS} patterns and formats."
            raise ValueError(problem)

    def _too_many(self, node: dict[str, Any]) -> bool:
        counts = [count for count in self._parts(node) if count]
        return len(counts) > 1 and sum(counts) > MAX_COMBINED_PATTERNS

    def _parts(self, node: dict[str, Any]) -> list[int]:
        """The regular expressions in each part that has to hold together with the others."""
        own = isinstance(node.get("pattern"), str) + isinstance(node.get("format"), str)
        own += len(_mapping(node.get("patternProperties")))
        parts = []
        for key, value in node.items():
            if key == "allOf" and isinstance(value, list):
                parts += [self._count(member) for member in value]
            elif key in ("anyOf", "oneOf"):
                parts.append(self._count(value))
            elif key == "$ref" and isinstance(value, str):
                parts.append(self._count(_target(self._schema, value)))
            else:
                own += self._count(value)
        return [own, *parts]

    def _count(self, value: Any) -> int:
        """Regular expressions in a value, references followed; enough of them, if many."""
        if not isinstance(value, dict | list):
            return 0
        if id(value) not in self._known:
            self._known[id(value)] = 0  # a circle adds nothing to itself
            counts = self._parts(value) if isinstance(value, dict) else map(self._count, value)
            self._known[id(value)] = min(sum(counts), MAX_COMBINED_PATTERNS + 1)
        return self._known[id(value)]


def _target(schema: Any, reference: str) -> Any:
    """What "#/a/b" refers to; None where nothing is there, which the compiler will say."""
    if reference != "#" and not reference.startswith("#/"):
        raise ValueError(f'Only references like "#/$defs/name" are followed, not {reference!r}.')
    for step in reference.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list) and key.isdigit() and int(key) < len(schema):
            schema = schema[int(key)]
        else:
            schema = _mapping(schema).get(key)
    return schema


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a schema, in whatever place; a superset of its subschemas."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
        waiting += _inside(value)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
