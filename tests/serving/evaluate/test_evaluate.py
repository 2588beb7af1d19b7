"""A reference of a server, and the server changed in one way: the changed thing is named."""

from dataclasses import replace

import pytest

from letters import Letters, serving
from ridgeline.errors import SpecError
from ridgeline.serving.evaluate.evaluate import evaluate, make_reference
from ridgeline.serving.policy.answers import Category
from ridgeline.serving.policy.config_faults import CRITERIA, EXACT

GOOD = Letters()


async def reference_of(server, **options):
    with serving(server) as url:
        return await make_reference(url, "m", **options)


async def compared(reference, server, criteria=CRITERIA):
    with serving(server) as url:
        return await evaluate(reference, url, "m", criteria=criteria)


def longest_prompts(reference):
    return [
        answer.prompt_tokens
        for case, answer in zip(reference.cases, reference.answers, strict=True)
        if case.category is Category.LONG
    ]


async def test_a_reference_has_every_category_and_prompts_up_to_the_longest_sequence():
    reference = await reference_of(replace(GOOD))
    assert {case.category for case in reference.cases} == set(Category)
    *_, last = longest_prompts(reference)
    assert 0.95 * GOOD.context < last <= GOOD.context - 16
    assert reference.longest == GOOD.context
    assert reference.repeats


async def test_the_longest_prompt_can_be_bounded():
    reference = await reference_of(replace(GOOD), longest=1200)
    assert 1000 < max(longest_prompts(reference)) <= 1200


async def test_an_unchanged_server_passes_to_the_last_digit():
    reference = await reference_of(replace(GOOD))
    for _ in range(3):
        result = await compared(reference, replace(GOOD))
        assert result.passed
        assert not result.faults
        assert {one.measured.difference for one in result.findings if one.measured} == {0}


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ({"template": "[{role}] {content}\n"}, "template"),
        ({"context": 1500}, "context"),
        ({"shift": 0.5}, "dtype"),
        ({"temperature": 0.3}, "sampling defaults"),
        ({"takes_schemas": False}, "refused"),
    ],
)
async def test_the_fault_is_found_and_named(fault, named):
    reference = await reference_of(replace(GOOD))
    result = await compared(reference, replace(GOOD, **fault))
    assert not result.passed
    assert [fault.kind for fault in result.faults] == [named]
    assert named in result.reason


async def test_rounding_passes_unless_nothing_may_differ():
    reference = await reference_of(replace(GOOD))
    rounded = replace(GOOD, shift=0.01)
    assert (await compared(reference, rounded)).passed
    result = await compared(reference, rounded, EXACT)
    assert [fault.kind for fault in result.faults] == ["dtype"]
    assert (await compared(reference, replace(GOOD), EXACT)).passed


async def test_what_the_good_server_refuses_is_no_part_of_its_reference():
    reference = await reference_of(replace(GOOD, takes_schemas=False))
    assert "structured/schema" not in {case.name for case in reference.cases}
    assert (await compared(reference, replace(GOOD))).passed


async def test_a_server_that_repeats_no_seed_is_known_and_judged_by_likelihood():
    reference = await reference_of(replace(GOOD, repeats=False))
    assert not reference.repeats
    assert (await compared(reference, replace(GOOD, repeats=False))).passed
    result = await compared(reference, replace(GOOD, repeats=False, temperature=0.0))
    assert [one.category for one in result.findings if not one.passed] == [Category.DEFAULTS]


async def test_a_server_that_answers_nothing_makes_no_reference():
    with pytest.raises(SpecError, match="answered no prompt: 400 at most 1 tokens"):
        await reference_of(replace(GOOD, context=1))


async def test_nobody_there_is_one_error():
    reference = await reference_of(replace(GOOD))
    with pytest.raises(SpecError, match="cannot be reached"):
        await evaluate(reference, "http://127.0.0.1:1", "m")
