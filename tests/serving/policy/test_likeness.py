import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.answers import Answer, Category, Pair, Step
from ridgeline.serving.policy.config_faults import Criteria
from ridgeline.serving.policy.likeness import compare


def answer(difference, tokens=100):
    steps = [Step("a", -0.1 - difference, {"a": -0.1 - difference})] * tokens
    return Answer(tuple(steps), prompt_tokens=9)


def pairs(differences):
    return [
        Pair(category, f"{category}/p", answer(0.0), answer(difference))
        for category, difference in differences.items()
    ]


def test_a_mean_over_categories_would_hide_the_one_that_broke():
    differences = dict.fromkeys(Category, 0.0) | {Category.CODE: 0.05}
    assert sum(differences.values()) / len(differences) < Criteria().same_difference
    result = compare(pairs(differences))
    assert not result.passed
    assert [one.category for one in result.findings if not one.passed] == [Category.CODE]


@given(st.dictionaries(st.sampled_from(list(Category)), st.floats(0, 2), min_size=1))
def test_it_passes_where_every_category_does_and_only_there(differences):
    result = compare(pairs(differences))
    assert result.passed == all(one.passed for one in result.findings)
    assert [one.category for one in result.findings] == [c for c in Category if c in differences]
    assert result.reason


def test_a_refusal_fails_its_category_with_the_servers_words():
    (finding,) = compare(
        [Pair(Category.STRUCTURED, "schema", answer(0.0), Answer(refused="400 no grammar"))]
    ).findings
    assert not finding.passed
    assert finding.reason == "1 refused; schema: 400 no grammar"


def test_other_tokens_at_the_top_fail_where_the_references_stay_likely():
    before = Answer(tuple(Step("a", -0.69, {"a": -0.69, "b": -0.70}) for _ in range(50)))
    now = Answer(tuple(Step("b", -0.69, {"b": -0.69, "a": -0.70}) for _ in range(50)))
    (finding,) = compare([Pair(Category.CHAT, "p", before, now)]).findings
    assert finding.measured.difference == pytest.approx(0.01)
    assert finding.reason == "100% of the likeliest tokens are others"


def test_no_answer_is_no_pass():
    assert not compare([Pair(Category.CHAT, "p", answer(0.0), Answer())]).passed
