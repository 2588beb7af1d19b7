"""The registry of what can be planned: each topic a function with typed, documented parameters.

    @topic("kv-cache", subject="serving")
    def kv_cache(
        model: Model = a_model("llama-3.1-70b"),
        context_tokens: Number = amount("8k", "tokens", "Tokens that each user holds."),
        dtype: str = choice("bf16", DTYPES, "Type of cached values."),
    ) -> Answer:
        \"\"\"How much cache a user takes.\"\"\"

From this one declaration come the command line's options, the JSON, the sweep and the tests that
walk every parameter. `ask` is the only way in: it turns what a person wrote into typed values, runs
the topic, and says which of what was given did not matter. A topic does no arithmetic of its own
where a law exists, and no I/O.
"""

import difflib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ridgeline.catalog.accelerators import DTYPE_BITS, Accelerator, accelerator
from ridgeline.catalog.models import Model, model
from ridgeline.errors import RidgelineError, SpecError, UnitError
from ridgeline.quantity import (
    Override,
    Provenance,
    Quantity,
    check_setting,
    overriding,
    set_to,
    value_of,
)
from ridgeline.show import show
from ridgeline.units import parse_number, parse_unit

#: Data types of weights and caches.
DTYPES = tuple(DTYPE_BITS)


_LAST_WORDS = {"tokens", "bytes", "s", "w", "usd", "flop", "k", "c"}


def stem(name: str) -> str:
    """A name without its unit, as people ask for it: `context_tokens` is `context`.

    Rates keep theirs (`memory_bytes_per_s`), and a hyphen is as good as an underscore.
    """
    words = name.replace("-", "_").split("_")
    if "per" not in words[1:] and len(words) > 1 and words[-1] in _LAST_WORDS:
        words = words[:-1]
    return "_".join(words)


class Kind(StrEnum):
    """What a parameter takes."""

    AMOUNT = "amount"
    COUNT = "count"
    CHOICE = "choice"
    FLAG = "flag"
    LIST = "list"
    TEXT = "text"
    MODEL = "model"
    ACCELERATOR = "accelerator"


@dataclass(frozen=True)
class Parameter:
    """One input of a topic: what it is, its unit and range, and what it is where not given.

    `default` is what a person would write. `most` and `least` are in base units. `interval` is
    the range that the default is uncertain within, as a person would write it.
    """

    kind: Kind
    default: Any
    doc: str
    unit: str = ""
    least: float = 0.0
    most: float = float("inf")
    options: tuple[str, ...] = ()
    interval: tuple[str, str] | None = None
    source: str = ""
    name: str = ""
    is_full: bool = False

    @property
    def option(self) -> str:
        """Its name on the command line, without the unit: `context_tokens` is `--context`.

        `is_full` where another parameter of the topic would be called the same.
        """
        return (self.name if self.is_full else stem(self.name)).replace("_", "-")

    @property
    def is_number(self) -> bool:
        """Whether it can be swept and varied."""
        return self.kind in (Kind.AMOUNT, Kind.COUNT)


def amount(
    default: str,
    unit: str,
    doc: str,
    *,
    least: str = "0",
    most: str = "",
    interval: tuple[str, str] | None = None,
    source: str = "",
) -> Any:
    """A number with a unit (`"8k"`, `"400 Gb/s"`, `"50 %"`); bounds are written the same way."""
    dimension = parse_unit(unit).dimension

    def bound(text: str) -> float:
        return 0.0 if text == "0" else parse_number(text, dimension)[0]

    high = bound(most) if most else float("inf")
    return Parameter(
        Kind.AMOUNT, default, doc, unit, bound(least), high, interval=interval, source=source
    )


def count(
    default: int, doc: str, *, noun: str = "", least: int = 1, most: float = float("inf")
) -> Any:
    """A whole number of something."""
    return Parameter(Kind.COUNT, str(default), doc, noun, least, most)


def choice(default: str, options: Sequence[str], doc: str) -> Any:
    """One of a few words."""
    return Parameter(Kind.CHOICE, default, doc, options=tuple(options))


def flag(default: bool, doc: str) -> Any:
    """Yes or no."""
    return Parameter(Kind.FLAG, default, doc, options=("yes", "no"))


def numbers(default: str, unit: str, doc: str) -> Any:
    """Several numbers of one unit, separated by commas; the topic gets a tuple of quantities."""
    return Parameter(Kind.LIST, default, doc, unit)


def text(default: str, doc: str, *, other: str) -> Any:
    """Words with a syntax of their own, which the topic reads; `other` is one more example."""
    return Parameter(Kind.TEXT, default, doc, options=(default, other))


def a_model(default: str, doc: str = "Model of the catalog.") -> Any:
    """A model by name."""
    return Parameter(Kind.MODEL, default, doc)


def an_accelerator(default: str, doc: str = "Accelerator of the catalog.") -> Any:
    """An accelerator by name."""
    return Parameter(Kind.ACCELERATOR, default, doc)


@dataclass(frozen=True)
class Answer:
    """What a topic found.

    `says` is one sentence, with `{name}` for each of `values` and each parameter. `values` are the
    numbers in order of interest; the first is the headline that sweeps and tornados look at.
    `table` has rows with the same keys each. `notes` are further sentences: what folklore says,
    what would change the answer. `ok` is False where the answer is no (exit status 1).
    """

    says: str
    values: dict[str, Quantity]
    table: tuple[dict[str, Quantity | str], ...] = ()
    notes: tuple[str, ...] = ()
    ok: bool = True


@dataclass(frozen=True)
class Topic:
    """A registered topic."""

    name: str
    subject: str
    summary: str
    details: str
    function: Callable[..., Answer]
    parameters: dict[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """A question with its answer. `inputs` are the typed values, `given` what the person gave.

    `remarks` are about what was given and not about the topic: a context beyond the model's, a
    value far from the one that it replaces.
    """

    topic: Topic
    answer: Answer
    inputs: dict[str, Any]
    given: dict[str, Any]
    overrides: dict[str, Any]
    remarks: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """Which rows of the catalog it is about: `Llama 3.1 70B on H100 SXM5 80 GB`."""
        models = self._rows(Kind.MODEL)
        return " on ".join(part for part in (models, self._rows(Kind.ACCELERATOR)) if part)

    def _rows(self, kind: Kind) -> str:
        names = [
            getattr(self.inputs[name], "name", "")
            for name, parameter in self.topic.parameters.items()
            if parameter.kind is kind
        ]
        return " and ".join(dict.fromkeys(name for name in names if name))

    @property
    def roots(self) -> list[Quantity]:
        """Every number of the answer."""
        cells = (cell for row in self.answer.table for cell in row.values())
        return [*self.answer.values.values(), *(c for c in cells if isinstance(c, Quantity))]

    def find(self, name: str) -> list[Quantity]:
        """The steps of that name (`row.field` also by `field` alone), each value once.

        Where nothing is called so, what is but for its unit: `per_user` finds `per_user_bytes`.
        """
        exact = self._find(name)
        if exact:
            return exact
        return [step for meant in alike(name, self.names()) for step in self._find(meant)]

    def _find(self, name: str) -> list[Quantity]:
        found: dict[tuple[str, str], Quantity] = {}
        for output, root in self.answer.values.items():
            if output == name:
                found.setdefault((name, repr(root.value)), root)
        for root in self.roots:
            for step in root.walk():
                if step.name and name in (step.name, step.name.rsplit(".", 1)[-1]):
                    found.setdefault((step.name, repr(step.value)), step)
        return list(found.values())

    def names(self) -> list[str]:
        """Every name that can be asked for or set, in order of appearance."""
        named = {step.name: None for root in self.roots for step in root.walk() if step.name}
        return list(dict.fromkeys([*self.answer.values, *named]))


TOPICS: dict[str, Topic] = {}


def topic(name: str, *, subject: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Register a function as a topic; its docstring's first line is the summary."""

    def register(function: Callable[..., Answer]) -> Callable[..., Answer]:
        assert name not in TOPICS, f"two topics are called {name}"
        summary, _, details = inspect.cleandoc(function.__doc__ or "").partition("\n")
        assert summary, f"the topic {name} has no docstring"
        parameters = {}
        for one in inspect.signature(function).parameters.values():
            assert isinstance(one.default, Parameter), f"{name}: {one.name} is not declared"
            parameters[one.name] = _named(one.default, one.name)
        parameters = _told_apart(parameters)
        TOPICS[name] = Topic(name, subject, summary, details.strip(), function, parameters)
        return function

    return register


def _told_apart(parameters: dict[str, Parameter]) -> dict[str, Parameter]:
    """Where two differ by their unit only, each keeps it: `--switch` and `--switch-usd`."""
    stems = [stem(name) for name in parameters]
    return {
        name: replace(one, is_full=stems.count(stem(name)) > 1) for name, one in parameters.items()
    }


def _named(parameter: Parameter, name: str) -> Parameter:
    return Parameter(**(vars(parameter) | {"name": name}))


def find_topic(name: str) -> Topic:
    """The topic of that name; SpecError names the nearest where there is none."""
    if name in TOPICS:
        return TOPICS[name]
    near = difflib.get_close_matches(name, TOPICS, n=3, cutoff=0.4)
    remedy = ", ".join(near) if near else "`ridgeline plan` lists them"
    raise SpecError(f'there is no topic "{name}"', where="plan", remedy=remedy)


def ask(
    name: str,
    given_values: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Asked:
    """Answer one topic.

    `given_values` has, by parameter, what a person would write, or a value already typed (a
    Quantity, a Model, an array in a Quantity for a sweep). `overrides` sets any other step by name,
    catalog values and intermediates included, to what a person wrote or to what a function makes of
    it. Names may lack their unit (`context`), and a parameter may be among the overrides. Raises
    SpecError, CatalogError or UnitError with the field, the problem and the remedy.
    """
    asked = find_topic(name)
    raw = {_parameter_name(asked, key): value for key, value in (given_values or {}).items()}
    steps = dict(overrides or {})
    _check_once(asked, raw, steps)
    for key in [key for key in steps if _is_word_of(asked, key)]:
        raw[_parameter_name(asked, key)] = steps.pop(key)
    hits: dict[str, str] = {}
    with overriding({key: _counting(key, text, hits) for key, text in steps.items()}):
        inputs, answer = _answered(asked, raw, steps)
    remarks = (*dict.fromkeys(told for told in hits.values() if told), *_beyond_context(inputs))
    done = Asked(asked, answer, inputs, raw, steps, remarks)
    for key in steps:
        if key not in hits:
            meant = _meant(key, done)
            if meant in steps or not meant:
                raise unknown_step(key, done, "--set")
            return ask(name, raw, {meant if one == key else one: steps[one] for one in steps})
    return done


def _answered(
    asked: Topic, raw: Mapping[str, Any], steps: Mapping[str, Any]
) -> tuple[dict[str, Any], Answer]:
    """The typed inputs and what the topic makes of them."""
    try:
        inputs = {
            key: typed(parameter, raw.get(key, parameter.default), is_given=key in raw)
            for key, parameter in asked.parameters.items()
        }
        answer = asked.function(**inputs)
        if any(math.isnan(value.value) for value in _single(answer)):
            raise ArithmeticError("something unlimited is set against something unlimited")
        return inputs, answer
    except RidgelineError as error:
        error.where = error.where or asked.name
        raise
    except (ArithmeticError, ValueError) as error:
        where, remedy = _likeliest(asked, raw, steps)
        raise SpecError(
            f"a number is out of all range ({error})", where=where, remedy=remedy
        ) from error


def _single(answer: Answer) -> list[Quantity]:
    """The values that are one number each, and not those of a sweep."""
    return [one for one in answer.values.values() if not getattr(one.value, "ndim", 0)]


def _likeliest(asked: Topic, raw: Mapping[str, Any], steps: Mapping[str, Any]) -> tuple[str, str]:
    """What is most to blame where arithmetic fails: what is farthest from its usual value."""
    far: dict[str, tuple[float, str]] = {}
    for name, value in raw.items():
        parameter = asked.parameters[name]
        if parameter.is_number:
            dimension = parse_unit(parameter.unit).dimension
            usual = parse_number(str(parameter.default), dimension)[0]
            try:
                is_typed = isinstance(value, Quantity)
                now = value_of(value) if is_typed else parse_number(str(value), dimension)[0]
                apart = _times_apart(float(now), usual)
                far[parameter.option] = (apart, f"nearer to {parameter.default}")
            except (RidgelineError, TypeError):
                continue
    if far:
        where = max(far, key=lambda one: far[one][0])
        return where, far[where][1]
    if steps:
        return f"--set {next(iter(steps))}", "nearer to what it replaces"
    return asked.name, "numbers nearer to the defaults"


def _times_apart(one: float, other: float) -> float:
    """By how many powers of ten two numbers differ; a zero is as far as can be."""
    if one == other:
        return 0.0
    if not (one and other and math.isfinite(one) and math.isfinite(other)):
        return math.inf
    return abs(math.log10(abs(one)) - math.log10(abs(other)))


def _check_once(asked: Topic, raw: Mapping[str, Any], steps: Mapping[str, Any]) -> None:
    """Refuse a parameter that is given as an option and again with `--set`."""
    for key, value in steps.items():
        meant = _meant_parameter(asked, key)
        if meant in raw and not callable(value):
            raise SpecError(f"{meant} is given twice", where=f"--set {key}", remedy="once")


_CONTEXTS = (("context_tokens",), ("input_tokens", "output_tokens"),
             ("prompt_tokens", "output_tokens"), ("mean_prompt_tokens",))  # fmt: skip


def _beyond_context(inputs: Mapping[str, Any]) -> list[str]:
    """Says where sequences are longer than what the catalog's model was made for."""
    told = []
    for one in (value for value in inputs.values() if isinstance(value, Model)):
        most = one.data.get("context")
        for names in _CONTEXTS:
            parts = [inputs[name] for name in names if isinstance(inputs.get(name), Quantity)]
            if names[0] not in inputs or any(getattr(part.value, "ndim", 0) for part in parts):
                continue
            length = sum(float(part.value) for part in parts)
            if isinstance(most, int | float) and length > most:
                told.append(
                    f"{length:,.0f} tokens are beyond the context of {one.name}:"
                    f" the catalog knows {most:,.0f} tokens."
                )
                break
    return told


def _meant(key: str, asked: Asked) -> str:
    """The step that a name stands for where none is called exactly so; empty where none does."""
    value = asked.answer.values.get(key)
    if value is not None and value.name:
        return value.name
    names = [step.name for root in asked.roots for step in root.walk() if step.name]
    return next(iter(alike(key, [*asked.topic.parameters, *names])), "")


def unknown_step(name: str, asked: Asked, where: str) -> SpecError:
    """The complaint that nothing has this name, with the nearest that there are."""
    names = {short: None for one in asked.names() for short in (one, one.rsplit(".", 1)[-1])}
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    remedy = ", ".join(near) if near else "--why shows every name"
    return SpecError(f'nothing is called "{name}" here', where=where, remedy=remedy)


def alike(name: str, names: Sequence[str]) -> list[str]:
    """The names that are `name` but for their unit, or but for hyphens; shorter ones first."""
    wanted = stem(name)
    found = {one: None for one in names if wanted in (stem(one), stem(one.rsplit(".", 1)[-1]))}
    return sorted(found, key=len)


def _parameter_name(asked: Topic, key: str) -> str:
    if key in asked.parameters:
        return key
    if meant := alike(key, list(asked.parameters)):
        return meant[0]
    near = difflib.get_close_matches(key, asked.parameters, n=2, cutoff=0.4)
    remedy = ", ".join(near or asked.parameters)
    raise SpecError(f'no parameter "{key}"', where=asked.name, remedy=remedy)


def _meant_parameter(asked: Topic, key: str) -> str:
    """The parameter that a name stands for; empty where none does."""
    if key in asked.parameters:
        return key
    return next(iter(alike(key, list(asked.parameters))), "")


def _is_word_of(asked: Topic, key: str) -> bool:
    """Whether a name of `--set` is a parameter that is no number, so no step of the derivation."""
    meant = _meant_parameter(asked, key)
    return bool(meant) and not asked.parameters[meant].is_number


def _counting(key: str, value: Any, hits: dict[str, str]) -> Override:
    """An override that notes in `hits` that it was used, with what is to be said of it."""
    override: Override = value if callable(value) else set_to(str(value))

    def counted(was: Quantity) -> Quantity:
        hits.setdefault(key, "")
        try:
            now = override(was)
            if not callable(value):
                check_setting(was, now)
                hits[key] = hits[key] or _doubt(was, now)
        except UnitError as error:
            raise UnitError(error.problem, where=f"--set {key}", remedy=error.remedy) from error
        return now

    return counted


_FAR = 6  # powers of ten
_BYTES = parse_unit("B").dimension


def _doubt(was: Quantity, now: Quantity) -> str:
    """What is to be said of a setting that may be a slip: far off, or bits for a size."""
    if getattr(was.value, "ndim", 0) or getattr(now.value, "ndim", 0):
        return ""
    name = now.name.rpartition(".")[2]
    symbol = now.unit.symbol
    if now.dimension == _BYTES and symbol.endswith("b"):
        return f"{name} is set in bits: {show(now)} are {show(now.but(unit=was.unit))}."
    apart = _times_apart(float(now.value), float(was.value))
    if not math.isfinite(apart) or apart <= _FAR:
        return ""
    way = "smaller" if abs(now.value) < abs(was.value) else "larger"
    return f"{name} is 1e{round(apart)} times {way} than what it replaces: {show(was)}."


def typed(parameter: Parameter, value: Any, *, is_given: bool) -> Any:
    """What a topic gets for what was written; SpecError, CatalogError or UnitError if it cannot."""
    match parameter.kind:
        case Kind.AMOUNT | Kind.COUNT:
            return _number(parameter, value, is_given=is_given)
        case Kind.LIST:
            return _list(parameter, value, is_given=is_given)
        case Kind.MODEL:
            return value if isinstance(value, Model) else model(str(value))
        case Kind.ACCELERATOR:
            return value if isinstance(value, Accelerator) else accelerator(str(value))
        case Kind.FLAG:
            return _flag(parameter, value)
        case Kind.TEXT:
            return str(value)
        case Kind.CHOICE:
            return _chosen(parameter, str(value))
    raise AssertionError(parameter.kind)


def _chosen(parameter: Parameter, value: str) -> str:
    """One of the options; upper and lower case are the same."""
    by_lower = {option.lower(): option for option in parameter.options}
    found = value if value in parameter.options else by_lower.get(value.strip().lower())
    if found is None:
        near = ", ".join(parameter.options)
        raise SpecError(f'"{value}" is none of them', where=parameter.option, remedy=near)
    return found


def _flag(parameter: Parameter, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("yes", "true", "on", "1"):
        return True
    if str(value).lower() in ("no", "false", "off", "0"):
        return False
    raise SpecError(f'"{value}" is neither', where=parameter.option, remedy="yes or no")


def _list(parameter: Parameter, value: Any, *, is_given: bool) -> tuple[Quantity, ...]:
    if isinstance(value, tuple | list):
        parts: list[Any] = list(value)
    else:
        parts = [part.strip() for part in str(value).split(",")]
    one = Parameter(Kind.AMOUNT, "", parameter.doc, parameter.unit, parameter.least, parameter.most)
    try:
        return tuple(
            _number(_named(one, f"{parameter.name}_{index}"), part, is_given=is_given)
            for index, part in enumerate(parts, 1)
        )
    except RidgelineError as error:
        error.where = parameter.option
        raise


def _number(parameter: Parameter, value: Any, *, is_given: bool) -> Quantity:
    unit = parse_unit(parameter.unit)
    if isinstance(value, Quantity):
        number = value.named(parameter.name)
    else:
        try:
            bare, written = parse_number(str(value), unit.dimension)
        except UnitError as error:
            raise UnitError(error.problem, where=parameter.option, remedy=error.remedy) from error
        number = Quantity(
            bare,
            written if written.dimension and written.symbol else unit,
            name=parameter.name,
            provenance=Provenance.GIVEN if is_given else Provenance.ASSUMED,
            source="you" if is_given else (parameter.source or "default of this topic"),
            interval=_interval(parameter, unit.dimension),
        ).named(parameter.name)
    _check_range(parameter, number)
    return number


def _interval(parameter: Parameter, dimension: Any) -> tuple[float, float] | None:
    if parameter.interval is None:
        return None
    low, high = parameter.interval
    return parse_number(low, dimension)[0], parse_number(high, dimension)[0]


def _check_range(parameter: Parameter, number: Quantity) -> None:
    value, unit = number.value, parse_unit(parameter.unit)
    low, high = (value.min(), value.max()) if getattr(value, "ndim", 0) else (value, value)
    for is_out, found, bound, words in (
        (low < parameter.least, low, parameter.least, ("small", "at least")),
        (high > parameter.most, high, parameter.most, ("large", "at most")),
    ):
        if is_out:
            raise SpecError(
                f"{found / unit.factor:g} {unit.symbol}".rstrip() + f" is too {words[0]}",
                where=parameter.option,
                remedy=f"{words[1]} {bound / unit.factor:g} {unit.symbol}".rstrip(),
            )
    is_one = parameter.kind is Kind.COUNT and not getattr(value, "ndim", 0)
    if is_one and math.isfinite(value) and value != round(value):
        raise SpecError(
            f"{value:g} is not a whole number", where=parameter.option, remedy=f"{round(value)}"
        )
