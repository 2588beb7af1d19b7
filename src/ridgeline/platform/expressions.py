"""The small language of workings: Python's expressions, over the catalog, laws and topics.

    read_s(model("llama-3.1-70b").weights_bytes("bf16"), accelerator("h100-sxm")
        .memory_bytes_per_s) / 8
    sum(turn for turn in range(1, 11)) / 10
    largest(read=q("5 ms"), arithmetic=topic("ttft", {"prompt": "8k"})["prefill_s"])

Text comes from files that anybody may write, so nothing is handed to Python: a tree of a few kinds
of nodes is walked, every name is looked up in the tables below, attributes exist only on rows of
the catalog, and depth, length, loops and steps are bounded. Whatever is not allowed, and whatever
cannot be computed, is a SpecError. The result keeps its derivation.
"""

import ast
import inspect
import math
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ridgeline import quantity
from ridgeline.errors import RidgelineError, SpecError
from ridgeline.platform.experiments import perform
from ridgeline.platform.plan import topics
from ridgeline.platform.vocabulary import FUNCTIONS, Value, attributes, laws, nearest
from ridgeline.quantity import Quantity, value_of
from ridgeline.topics import Asked, ask

#: What one expression may be and do at most.
MOST_CHARACTERS = 2000
MOST_DEPTH = 40
MOST_STEPS = 100_000
MOST_IN_RANGE = 20_000
MOST_POWER = 12  # of what has a unit
#: A topic or an experiment counts as so many steps.
COST_OF_A_CALL = 5_000


@dataclass(frozen=True)
class Worked:
    """What an expression gave, and every pair of numbers that it compared on the way."""

    value: Value
    compared: tuple[tuple[Value, str, Value], ...] = ()

    @property
    def parts(self) -> tuple[Value, ...]:
        """The result as a tuple: of one element where it is one number."""
        return self.value if isinstance(self.value, tuple) else (self.value,)

    @property
    def roots(self) -> list[Quantity]:
        """All numbers whose derivation belongs to the result."""
        sides = (side for left, _, right in self.compared for side in (left, right))
        return [one for one in (*self.parts, *sides) if isinstance(one, Quantity)]


#: What Python raises where laws meet numbers outside of their domain, or too few of them.
_FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


def evaluate(text: str, *, where: str = "working") -> Worked:
    """The value of an expression; SpecError, at `where`, for all that it cannot be."""
    walker = _Walker(where)
    try:
        with np.errstate(all="ignore"):  # what is not finite is an error below
            value = walker.visit(_parsed(text, where))
        return Worked(_checked(value, where), tuple(walker.compared))
    except RidgelineError as error:
        if error.where.startswith(where):
            raise
        told = f"{where}: {error.where}" if error.where else where
        raise SpecError(error.problem, where=told, remedy=error.remedy) from error
    except _FAILURES as error:
        problem = f"cannot be computed: {error or type(error).__name__}"
        raise SpecError(problem, where=where, remedy="check the numbers and their units") from error
    except (RecursionError, MemoryError) as error:
        raise SpecError("is too large", where=where, remedy="a shorter expression") from error


def _parsed(text: str, where: str) -> ast.expr:
    if len(text) > MOST_CHARACTERS:
        remedy = f"at most {MOST_CHARACTERS:,} characters"
        raise SpecError(f"has {len(text):,} characters", where=where, remedy=remedy)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        told = getattr(error, "msg", None) or str(error)
        remedy = 'such as accelerator("h100-sxm").memory_bytes_per_s / 8'
        raise SpecError(f"is not an expression: {told}", where=where, remedy=remedy) from error
    if _depth(tree) > MOST_DEPTH:
        raise SpecError("is nested too deeply", where=where, remedy=f"at most {MOST_DEPTH} levels")
    return tree


def _depth(tree: ast.AST) -> int:
    level, depth = [tree], 0
    while level and depth <= MOST_DEPTH:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        depth += 1
    return depth


def _checked(value: Value, where: str) -> Value:
    """A result that can be shown: numbers and truths only, all finite."""
    parts = value if isinstance(value, tuple) else (value,)
    for part in parts:
        bare = value_of(part)
        if not isinstance(bare, bool | int | float) and not hasattr(bare, "dtype"):
            told = type(part).__name__.lower()
            remedy = _PICK.get(told, "an expression that gives a number")
            raise SpecError(f"gives no number ({told})", where=where, remedy=remedy)
        if not math.isfinite(float(bare)):
            raise SpecError("gives no finite number", where=where, remedy="smaller numbers")
    return value


_PICK = {
    "asked": 'pick one of the answer\'s values: topic(...)["name"]',
    "model": "one of its properties, such as .params",
    "accelerator": "one of its properties, such as .memory_bytes",
}

#: The kinds of nodes that a tree may have; operators are in the two tables below.
_NODES = frozenset(
    {
        ast.Constant, ast.Name, ast.Tuple, ast.List, ast.Dict, ast.BinOp, ast.UnaryOp, ast.BoolOp,
        ast.IfExp, ast.Compare, ast.GeneratorExp, ast.ListComp, ast.Subscript, ast.Attribute,
        ast.Call,
    }
)  # fmt: skip
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", lambda left, right: _equal(left, right)),
    ast.NotEq: ("!=", lambda left, right: not _equal(left, right)),
}


def _equal(left: Value, right: Value) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return bool(left == right)
    difference = value_of(left - right)
    return bool(abs(difference) <= 1e-9 * abs(value_of(right)))


@dataclass
class _Walker:
    """Walks one tree; `steps` counts what it did, `names` holds the variables of loops."""

    where: str
    steps: int = 0
    names: dict[str, Value] = field(default_factory=dict)
    compared: list[tuple[Value, str, Value]] = field(default_factory=list)

    def visit(self, node: ast.AST) -> Value:
        """The value of a node, by the method of its kind."""
        self.spend(1)
        if type(node) not in _NODES:
            raise self.wrong(f"{_kind(node)} is not part of this language")
        return getattr(self, f"_{type(node).__name__.lower()}")(node)

    def spend(self, steps: int) -> None:
        """Count steps; SpecError where they are too many."""
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise self.wrong("takes too many steps", "a shorter loop")

    def wrong(self, problem: str, remedy: str = "see the guide to claims") -> SpecError:
        """The error to raise."""
        return SpecError(problem, where=self.where, remedy=remedy)

    def _constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, bool | str):
            return node.value
        if isinstance(node.value, int | float):
            return float(node.value)
        raise self.wrong(f"{node.value!r} is no number")

    def _name(self, node: ast.Name) -> Value:
        if node.id in self.names:
            return self.names[node.id]
        known = [*self.names, *FUNCTIONS, *laws()]
        if node.id in known:
            raise self.wrong(f"{node.id} is a function", f"{node.id}(...)")
        raise self.wrong(f'there is no "{node.id}"', nearest(node.id, known))

    def _tuple(self, node: ast.Tuple) -> Value:
        return tuple(self.visit(one) for one in node.elts)

    def _list(self, node: ast.List) -> Value:
        return tuple(self.visit(one) for one in node.elts)

    def _dict(self, node: ast.Dict) -> Value:
        found = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise self.wrong("** is not part of this language")
            found[self.visit(key)] = self.visit(value)
        return found

    def _binop(self, node: ast.BinOp) -> Value:
        left, right = (self._number(self.visit(side)) for side in (node.left, node.right))
        if isinstance(node.op, ast.FloorDiv):
            return quantity.floor(left / right)
        if type(node.op) not in _BINARY:
            raise self.wrong(f"{_kind(node.op)} is not part of this language")
        if isinstance(node.op, ast.Pow) and isinstance(left, Quantity) and left.dimension:
            self._check_power(value_of(right))
        result = _BINARY[type(node.op)](left, right)
        if isinstance(value_of(result), complex):
            raise self.wrong("a root of a negative number")
        return result

    def _check_power(self, power: float) -> None:
        if abs(power) > MOST_POWER:
            raise self.wrong(f"a unit to the power of {power:g}", f"at most {MOST_POWER}")

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return not self._truth(value)
        if isinstance(node.op, ast.USub):
            return -self._number(value)
        if isinstance(node.op, ast.UAdd):
            return self._number(value)
        raise self.wrong(f"{_kind(node.op)} is not part of this language")

    def _boolop(self, node: ast.BoolOp) -> bool:
        want = isinstance(node.op, ast.Or)
        values = [self._truth(self.visit(one)) for one in node.values]
        return any(values) if want else all(values)

    def _ifexp(self, node: ast.IfExp) -> Value:
        return self.visit(node.body if self._truth(self.visit(node.test)) else node.orelse)

    def _compare(self, node: ast.Compare) -> bool:
        sides = [self.visit(side) for side in (node.left, *node.comparators)]
        holds = True
        for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
            if type(op) not in _COMPARISONS:
                raise self.wrong(f"{_kind(op)} is not part of this language")
            sign, compare = _COMPARISONS[type(op)]
            self.compared.append((left, sign, right))
            holds = bool(compare(self._number(left), self._number(right))) and holds
        return holds

    def _generatorexp(self, node: ast.GeneratorExp) -> Iterator[Value]:
        return iter(list(self._loop(node.elt, node.generators)))

    def _listcomp(self, node: ast.ListComp) -> Value:
        return tuple(self._loop(node.elt, node.generators))

    def _loop(self, body: ast.expr, loops: list[ast.comprehension]) -> Iterator[Value]:
        if not loops:
            yield self.visit(body)
            return
        loop = loops[0]
        if not isinstance(loop.target, ast.Name) or loop.is_async:
            raise self.wrong("a loop has one variable")
        over = self.visit(loop.iter)
        if not isinstance(over, tuple):
            raise self.wrong("a loop runs over range(...) or a list")
        before = dict(self.names)
        for value in over:
            self.names[loop.target.id] = value
            if all(self._truth(self.visit(test)) for test in loop.ifs):
                yield from self._loop(body, loops[1:])
        self.names = before

    def _subscript(self, node: ast.Subscript) -> Value:
        value, index = self.visit(node.value), self.visit(node.slice)
        if isinstance(value, Asked) and isinstance(index, str):
            return self._of_answer(value, index)
        if isinstance(value, tuple) and isinstance(index, float) and index == int(index):
            return value[int(index)]
        raise self.wrong("[...] picks a value of a topic by name, or one of several by number")

    def _of_answer(self, asked: Asked, name: str) -> Value:
        if name == "ok":
            return asked.answer.ok
        found = [asked.answer.values[name]] if name in asked.answer.values else asked.find(name)
        if not found:
            raise self.wrong(f'{asked.topic.name} has no "{name}"', nearest(name, asked.names()))
        return found[0]

    def _attribute(self, node: ast.Attribute) -> Value:
        row = self.visit(node.value)
        kind: Any = type(row)
        if node.attr in attributes(kind):
            return getattr(row, node.attr)
        known = attributes(kind)
        problem = f'"{node.attr}" is nothing of a {kind.__name__.lower()}'
        raise self.wrong(
            problem, nearest(node.attr, known) if known else "only rows have attributes"
        )

    def _call(self, node: ast.Call) -> Value:
        function = self._function(node.func)
        arguments = [self.visit(one) for one in node.args]
        named = {one.arg: self.visit(one.value) for one in node.keywords if one.arg}
        if len(named) < len(node.keywords):
            raise self.wrong("** is not part of this language")
        self._check_arguments(node.func, function, arguments, named)
        return function(*arguments, **named)

    def _check_arguments(
        self, called: ast.expr, function: Callable[..., Value], *given: Any
    ) -> None:
        """SpecError that names the argument which is missing, unknown or too much."""
        try:
            signature = inspect.signature(function)
        except ValueError:  # of Python's own, written in C
            return
        arguments, named = given
        try:
            signature.bind(*arguments, **named)
        except TypeError as error:
            name = f".{called.attr}" if isinstance(called, ast.Attribute) else ast.unparse(called)
            parameters = ", ".join(
                one.name if one.default is one.empty else f"{one.name}={one.default}"
                for one in signature.parameters.values()
            )
            raise self.wrong(f"{name}: {error}", f"{name}({parameters})") from error

    def _function(self, node: ast.expr) -> Callable[..., Value]:
        if isinstance(node, ast.Attribute):
            method = self._attribute(node)
            if not callable(method):
                raise self.wrong(f"{node.attr} takes no arguments", "without ()")
            return method  # type: ignore[no-any-return]
        if not isinstance(node, ast.Name):
            raise self.wrong("only names can be called")
        counted: dict[str, Callable[..., Value]] = {
            "topic": self._topic,
            "experiment": self._experiment,
            "range": self._range,
        }
        function = counted.get(node.id) or FUNCTIONS.get(node.id) or laws().get(node.id)
        if function is None:
            known = [*counted, *FUNCTIONS, *laws()]
            raise self.wrong(f'there is no function or law "{node.id}"', nearest(node.id, known))
        return function

    def _topic(self, name: str, given: Any = None, overrides: Any = None) -> Asked:
        self.spend(COST_OF_A_CALL)
        topics()
        changes = {key: _override(value) for key, value in (overrides or {}).items()}
        return ask(name, {key: _written(value) for key, value in (given or {}).items()}, changes)

    def _experiment(self, name: str, *arguments: Value, **named: Value) -> Value:
        self.spend(COST_OF_A_CALL)
        return perform(name, *arguments, **named)

    def _range(self, *bounds: Value) -> tuple[float, ...]:
        whole = []
        for bound in bounds:
            bare = float(bound)
            if not math.isfinite(bare) or bare != round(bare) or abs(bare) > 1e15:
                raise self.wrong(f"range takes whole numbers, not {bare:g}")
            whole.append(round(bare))
        numbers = range(*whole)
        if len(numbers) > MOST_IN_RANGE:
            raise self.wrong(f"a range of {len(numbers):,}", f"at most {MOST_IN_RANGE:,}")
        return tuple(float(one) for one in numbers)

    def _number(self, value: Value) -> Value:
        if isinstance(value, Quantity | float | int) and not isinstance(value, bool):
            return value
        kind = "text" if isinstance(value, str) else type(value).__name__.lower()
        remedy = 'q("80 GB") for a quantity' if kind == "text" else "a number"
        raise self.wrong(f"takes a number, not {kind}", remedy)

    def _truth(self, value: Value) -> bool:
        if isinstance(value, bool):
            return value
        raise self.wrong("and, or, not and if take comparisons", "such as a < b")


def _written(value: Value) -> Value:
    """What a topic's parameter gets: text and quantities as they are, numbers as written."""
    if isinstance(value, float):
        return f"{value:.15g}"
    return value


def _override(value: Value) -> Any:
    """What `--set` gets: text, or a quantity that stands in its place."""
    if isinstance(value, Quantity):
        return lambda was: value.but(name=was.name)
    return _written(value)


def _kind(node: ast.AST) -> str:
    """A node's kind in words: `a lambda`."""
    words = re.sub("(?<!^)([A-Z])", r" \1", type(node).__name__).lower()
    return f"a {words}"
