"""Every topic and every parameter: it answers, it depends on what it is given, it says where from.

The tests walk the registry, so that a new topic is under them the moment it is registered.
"""

import json
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ridgeline.catalog.accelerators import accelerators
from ridgeline.catalog.models import models
from ridgeline.errors import CatalogError, RidgelineError, SpecError, UnitError
from ridgeline.platform.plan import topics
from ridgeline.quantity import Provenance, Quantity
from ridgeline.topics import TOPICS, Asked, Kind, Parameter, ask
from ridgeline.units import parse_unit
from ridgeline.working.data import as_data
from ridgeline.working.lines import length, plain
from ridgeline.working.sweep import sweep
from ridgeline.working.text import answer_lines, said
from ridgeline.working.why import why

NAMES = sorted(topics())
PARAMETERS = [(name, one) for name in NAMES for one in TOPICS[name].parameters.values()]
NUMBERS = [(name, one) for name, one in PARAMETERS if one.is_number]
RESERVED = {"set", "why", "sweep", "sensitivity", "value", "versus", "slo", "plot", "json"} | {
    "markdown",
    "help",
}
FACTORS = (1.1, 0.9, 1.5, 2, 0.5, 4, 0.25, 16, 1 / 16, 100, 0.01, 1000)


def _id(value: Any) -> str:
    return value.name if isinstance(value, Parameter) else str(value)


@cache
def answered(name: str) -> Asked:
    return ask(name)


def fingerprint(asked: Asked) -> Any:
    """All numbers of the answer and of its derivation, and all it says but its sentence."""
    nodes = {
        (step.name, step.op, repr(step.value), step.labels, repr(step.chosen))
        for root in asked.roots
        for step in root.walk()
    }
    rows = [[repr(getattr(c, "value", c)) for c in row.values()] for row in asked.answer.table]
    return nodes, rows, asked.answer.notes, asked.answer.ok


@pytest.mark.parametrize("name", NAMES)
def test_a_topic_answers_with_its_defaults(name):
    answer = answered(name).answer
    assert answer.values
    assert all(isinstance(value, Quantity) for value in answer.values.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_topic_says_its_answer_in_a_sentence(name):
    sentence = said(answered(name))
    assert "{" not in sentence
    assert "<" not in sentence


@pytest.mark.parametrize("name", NAMES)
def test_a_topic_is_documented(name):
    topic = TOPICS[name]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert topic.summary.endswith((".", "?"))
    assert all(one.doc for one in topic.parameters.values())
    assert not RESERVED & {one.option for one in topic.parameters.values()}


def is_told(step: Quantity) -> bool:
    """Whether an input says where it is from; nothing and one need no source."""
    if step.provenance is Provenance.DEFINED or step.value in (0, 1):
        return True
    return bool(step.name and step.source) and step.provenance is not Provenance.COMPUTED


@pytest.mark.parametrize("name", NAMES)
def test_every_value_is_derived_from_inputs_that_say_where_they_are_from(name):
    headings = {id(root) for root in answered(name).roots if not root.op and not root.name}
    steps = {id(step): step for root in answered(name).roots for step in root.walk()}
    inputs = [step for key, step in steps.items() if not step.op and key not in headings]
    assert {step.name or repr(step.value) for step in inputs if not is_told(step)} == set()


@pytest.mark.parametrize("name", NAMES)
def test_the_text_fits_80_columns_and_a_tree_100(name):
    asked = answered(name)
    text = plain(answer_lines(asked)).splitlines()
    assert [line for line in text if len(line) > 80] == []
    for value_name, value in asked.answer.values.items():
        assert [line for line in why(value, value_name) if length(line) > 100] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_json_without_loss(name):
    asked = answered(name)
    data = json.loads(json.dumps(as_data(asked), allow_nan=False))
    assert set(data["values"]) == set(asked.answer.values)
    for value_name, value in asked.answer.values.items():
        told = data["values"][value_name]
        node = data["derivation"][told["node"]]
        assert node["value"] == told["value"]
        if np.isfinite(value.value):
            assert told["value"] == pytest.approx(value.value, rel=1e-15)
    ids = {node["id"] for node in data["derivation"]}
    assert all(set(node["inputs"]) <= ids for node in data["derivation"])


def others(name: str, parameter: Parameter) -> list[Any]:
    """Values of a parameter that are not its default, over its range."""
    match parameter.kind:
        case Kind.AMOUNT | Kind.COUNT:
            now = answered(name).inputs[parameter.name]
            return [now.but(value=value) for value in _multiples(parameter, now.value)]
        case Kind.CHOICE | Kind.TEXT:
            return [one for one in parameter.options if one != parameter.default]
        case Kind.FLAG:
            return [not parameter.default]
        case Kind.MODEL:
            return [one.id for one in models() if one.id != parameter.default]
        case Kind.ACCELERATOR:
            return [one.id for one in accelerators() if one.id != parameter.default]
        case Kind.LIST:
            now = answered(name).inputs[parameter.name]
            sizes = [one.value or 1.0 for one in now]
            return [
                [one.but(value=size * factor) for one, size in zip(now, sizes, strict=True)]
                for factor in FACTORS
            ]
    raise AssertionError(parameter.kind)


def _multiples(parameter: Parameter, now: float) -> list[float]:
    ends = [end for end in (parameter.least, parameter.most) if np.isfinite(end)]
    around = [now * factor for factor in FACTORS] if now else [1.0, 10.0, 0.5, 1e6, 1e9, 1e12]
    found = [value for value in [*around, *ends] if parameter.least <= value <= parameter.most]
    if parameter.kind is Kind.COUNT:
        found = [float(round(value)) for value in found] + [now + 1, now - 1, now + 2]
        found = [value for value in found if parameter.least <= value <= parameter.most]
    return [value for value in found if value != now]


def answers_with(name: str, parameter: Parameter, value: Any) -> Asked | None:
    try:
        return ask(name, {parameter.name: value})
    except RidgelineError:
        return None


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS, ids=_id)
def test_every_parameter_changes_the_answer_or_a_step_of_its_derivation(name, parameter):
    before = fingerprint(answered(name))
    for value in others(name, parameter):
        after = answers_with(name, parameter, value)
        if after is not None and fingerprint(after) != before:
            return
    pytest.fail(f"{name} takes {parameter.name} and nothing ever depends on it")


@pytest.mark.parametrize(
    ("name", "parameter"), [p for p in PARAMETERS if p[1].kind is Kind.CHOICE], ids=_id
)
def test_every_word_of_a_choice_is_answered_or_refused_with_a_remedy(name, parameter):
    for word in parameter.options:
        assert_answered_or_refused(name, {parameter.name: word})


def with_kind(kind: Kind) -> list[tuple[str, Parameter]]:
    return [(name, one) for name, one in PARAMETERS if one.kind is kind]


@pytest.mark.parametrize(("name", "parameter"), with_kind(Kind.MODEL), ids=_id)
def test_every_model_of_the_catalog_is_answered_or_refused_with_a_remedy(name, parameter):
    for one in models()[::5]:
        assert_answered_or_refused(name, {parameter.name: one.id})


@pytest.mark.parametrize(("name", "parameter"), with_kind(Kind.ACCELERATOR), ids=_id)
def test_every_accelerator_of_the_catalog_is_answered_or_refused_with_a_remedy(name, parameter):
    for one in accelerators()[::4]:
        assert_answered_or_refused(name, {parameter.name: one.id})


def assert_answered_or_refused(name: str, given: dict[str, Any]) -> None:
    """A refusal says where and what to try; nothing else may come out of a topic."""
    error = refusal(name, given)
    if error is not None:
        assert isinstance(error, SpecError | CatalogError | UnitError), given
        assert error.where, (given, error)
        assert error.remedy, (given, error)


def refusal(name: str, given: dict[str, Any]) -> RidgelineError | None:
    try:
        said(ask(name, given))
    except RidgelineError as error:
        return error
    return None


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.parametrize("name", NAMES)
def test_nonsense_is_refused_with_where_and_remedy(name, data):
    parameters = list(TOPICS[name].parameters.values())
    parameter = data.draw(st.sampled_from(parameters))
    written = data.draw(
        st.one_of(
            st.text(max_size=12),
            st.from_regex(
                r"-?[0-9]{1,4}(\.[0-9])?(e[0-9])? ?(GB|GiB|ms|tokens|%|USD/h|W|)", fullmatch=True
            ),
            st.sampled_from(["0", "-1", "1e400", "nan", "inf", "1e-300", "9" * 40, ",", "1,,2"]),
        )
    )
    assert_answered_or_refused(name, {parameter.name: written})


@pytest.mark.parametrize("name", NAMES)
def test_a_number_far_out_of_range_is_answered_or_refused_and_soon(name):
    for parameter in TOPICS[name].parameters.values():
        for size in ("0", "1e-300", "1e300", "9" * 40) if parameter.is_number else ():
            assert_answered_or_refused(name, {parameter.name: f"{size} {parameter.unit}".strip()})


@pytest.mark.parametrize(("name", "parameter"), NUMBERS, ids=_id)
def test_all_points_at_once_give_what_single_questions_give(name, parameter):
    now = answered(name).inputs[parameter.name]
    values = sorted(v for v in _multiples(parameter, now.value) if 0.2 <= v / (now.value or 1) <= 5)
    written = ",".join(_written(value, now) for value in [*values, now.value])
    try:
        together = sweep(name, f"{parameter.name}={written}")
    except RidgelineError:
        pytest.skip("no point of this range has an answer")
    alone = sweep(name, f"{parameter.name}={written}", at_once=False)
    assert not alone.is_vectorised
    assert list(together.columns) == list(alone.columns)
    for value_name, column in together.columns.items():
        np.testing.assert_allclose(column.values, alone.columns[value_name].values, rtol=1e-9)
    assert together.refused == alone.refused
    assert together.binds == alone.binds


def _written(value: float, like: Quantity) -> str:
    symbol = like.unit.symbol if like.dimension or like.unit.symbol == "%" else ""
    return f"{value / parse_unit(symbol).factor!r} {symbol}"
