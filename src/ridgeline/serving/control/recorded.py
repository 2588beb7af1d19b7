"""Recorded decisions, replayed: the same views must give the same answers.

Four kinds. A route and a number of replicas are answers to one view. What runs in a step and who
may queue are answers of state machines: there the view is every call since it was made, in order.

    live:    Recorder(pool, ADMIT, write)    each call and its answer, one line of JSON
    later:   replay(lines, ADMIT, Pool)      None, or the first view that is answered differently

A line is written before anything else can change what is in it. The gateway writes each route with
its view into the store as it is (`gateway.fleet`); `routes` makes lines of those. Nothing here is
in the way of a live system that is not recorded.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ridgeline.serving.policy.admit import Bounds, PoolRates
from ridgeline.serving.policy.batch import Batcher, Limits, Step
from ridgeline.serving.policy.blocks import BlockBook
from ridgeline.serving.policy.classes import Classes
from ridgeline.serving.policy.pool import Pool
from ridgeline.serving.policy.route import View, route
from ridgeline.serving.policy.scale import Look, Settings, scale
from ridgeline.serving.policy.vtc import Entry

Write = Callable[[bytes], None]
_MADE = "made"


@dataclass(frozen=True, slots=True)
class Kind:
    """What is recorded of a decision: the calls by name, with the types of what they are given.

    `made` is what the state machine is made of, and `make` makes one; of a function there is
    none.
    """

    name: str
    calls: Mapping[str, tuple[Any, ...]]
    made: tuple[Any, ...] = ()
    make: Callable[..., Any] | None = None


def _batcher(limits: Limits, blocks: int, block_size: int, caching: bool) -> Batcher:
    return Batcher(limits, BlockBook(blocks, block_size, caching=caching))


ROUTE = Kind("route", {"route": (View,)})
SCALE = Kind("scale", {"scale": (list[Look], Settings, int)})
ADMIT = Kind(
    "admit",
    {
        "enter": (Entry, int, int, PoolRates | None),
        "pick": (int, int),
        "leave": (str,),
        "expire": (Entry, int, PoolRates | None),
        "end": (str, int),
        "queue.said": (str, int),
        "queue.corrected": (str, int),
        "queue.undo": (str,),
    },
    (Classes, Bounds | None),
    Pool,
)
BATCH = Kind(
    "batch",
    {
        "add": (str, int, int, list[bytes], int, int),
        "fork": (str, str, int),
        "extend": (str, list[bytes]),
        "finish": (str,),
        "decide": (),
        "guess": (Step, dict[str, int]),
        "commit": (Step, dict[str, int] | None),
    },
    (Limits, int, int, bool),
    _batcher,
)


class Line(msgspec.Struct, frozen=True):
    """One call: which, with what, and what was answered."""

    what: str
    given: msgspec.Raw
    answer: msgspec.Raw


class _Tried(msgspec.Struct):
    view: msgspec.Raw
    route: msgspec.Raw


class _Detail(msgspec.Struct):
    """A request as the gateway has it on record: one route for each try."""

    decisions: list[_Tried]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first view (counted from 0) whose answer is another one now."""

    kind: str
    number: int
    what: str
    given: str
    recorded: str
    now: str

    def __str__(self) -> str:
        """What a person reads."""
        view = f"{self.kind}, view {self.number}: {self.what}{self.given}"
        return f"{view}\n  recorded: {self.recorded}\n  now:      {self.now}"


class Recorder:
    """Stands for a state machine, and writes down every call that its kind names.

    `made` is what the machine was made of, as `Kind.made` says.
    """

    def __init__(self, machine: Any, kind: Kind, made: Sequence[Any], write: Write) -> None:
        self._machine = machine
        self._kind = kind
        self._write = write
        self._prefix = ""
        write(_line(_MADE, made, None))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._machine, name)
        path = f"{self._prefix}{name}"
        if path in self._kind.calls:
            return recorded(found, path, self._write)
        if any(call.startswith(f"{path}.") for call in self._kind.calls):
            return self._part(found, f"{path}.")
        return found

    def _part(self, machine: Any, prefix: str) -> "Recorder":
        part = Recorder.__new__(Recorder)
        part._machine, part._kind, part._write = machine, self._kind, self._write
        part._prefix = prefix
        return part


def recorded(decide: Callable[..., Any], what: str, write: Write) -> Callable[..., Any]:
    """The same function, whose calls are written down."""
    signature = inspect.signature(decide)

    def call(*args: Any, **named: Any) -> Any:
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        given = msgspec.json.encode(list(bound.arguments.values()))  # before it changes anything
        answer = decide(*args, **named)
        write(msgspec.json.encode(Line(what, msgspec.Raw(given), _raw(answer))))
        return answer

    return call


def routes(details: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of what the gateway wrote down of its routes: `decisions.detail` of its store."""
    for detail in details:
        for tried in msgspec.json.decode(detail, type=_Detail).decisions:
            given = msgspec.json.encode([tried.view])
            yield msgspec.json.encode(Line("route", msgspec.Raw(given), tried.route))


def replay(lines: Iterable[bytes], kind: Kind, policy: Callable[..., Any] | None = None) -> int:
    """Ask all recorded views anew; how many there were.

    `policy` stands for the kind's own: a function, or what makes a machine of `kind.made`. Raises
    DifferenceError at the first answer that is not the recorded one.
    """
    ask = _asked(kind, policy)
    number = -1
    for number, raw in enumerate(lines):
        line = msgspec.json.decode(raw, type=Line)
        types = kind.made if line.what == _MADE else kind.calls[line.what]
        given = msgspec.json.decode(line.given, type=tuple[types])  # type: ignore[valid-type]
        answer = _raw(ask(line.what, given))
        if bytes(answer) != bytes(line.answer):
            texts = (bytes(one).decode() for one in (line.given, line.answer, answer))
            raise DifferenceError(Difference(kind.name, number, line.what, *texts))
    return number + 1


class DifferenceError(AssertionError):
    """A view was answered otherwise than when it was recorded."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        self.difference = difference


def _asked(kind: Kind, policy: Callable[..., Any] | None) -> Callable[[str, tuple[Any, ...]], Any]:
    """Who answers a call: the function, or the machine that the first line makes."""
    if kind.make is None:
        decide = policy or _FUNCTIONS[kind.name]
        return lambda _what, given: decide(*given)
    make, machines = policy or kind.make, []

    def ask(what: str, given: tuple[Any, ...]) -> Any:
        if what == _MADE:
            machines.append(make(*given))
            return None
        found = machines[-1]
        for name in what.split("."):
            found = getattr(found, name)
        return found(*given)

    return ask


def _scale(looks: Sequence[Look], settings: Settings, floor: int) -> Any:
    return scale(looks, settings, floor=floor)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"route": route, "scale": _scale}


def _line(what: str, given: Sequence[Any], answer: Any) -> bytes:
    return msgspec.json.encode(Line(what, msgspec.Raw(msgspec.json.encode(given)), _raw(answer)))


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
