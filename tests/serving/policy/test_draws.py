import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.answers import Answer, Category, Pair, Step
from ridgeline.serving.policy.draws import diverging, is_exact, judge_draws

ROUNDING = 0.01


def answer(text, logprob=-1.0):
    return Answer(tuple(Step(token, logprob, {token: logprob}) for token in text))


def pair(before, now):
    return Pair(Category.DEFAULTS, "p", before, now)


def drawn(seed, shift=0.0, answers=32, tokens=24):
    """Texts of one likelihood beside others that are `shift` likelier, rounded otherwise."""
    chance = random.Random(seed)

    def one(moved):
        values = [-chance.expovariate(0.5) + moved for _ in range(tokens)]
        steps = [Step(chance.choice("abcd"), value, {"e": value - 5}) for value in values]
        return Answer((Step("a", -1.0 - moved / 100, {"a": -1.0 - moved / 100}), *steps))

    return [pair(one(0.0), one(shift or ROUNDING)) for _ in range(answers)]


def test_of_the_same_numbers_the_same_tokens_are_wanted():
    same = [pair(answer("abcd"), answer("abcd"))]
    assert judge_draws(same, 4.0, repeats=True) == (True, "the same tokens are drawn")
    passed, reason = judge_draws([pair(answer("abcd"), answer("abxy"))], 4.0, repeats=True)
    assert not passed
    assert reason.startswith("33% of tokens drawn without parameters are others")


def test_after_the_first_other_token_nothing_is_compared():
    # Two that were alike, one that was not; what follows is another text.
    assert diverging([pair(answer("abcd"), answer("abxy"))]) == pytest.approx(1 / 3)
    both = [pair(answer("abcd"), answer("abxy")), pair(answer("abcd"), answer("abcd"))]
    assert diverging(both) == pytest.approx(1 / 7)


def test_numbers_are_the_same_or_not_as_far_as_the_text_is():
    before = [Step("a", -1.0, {"a": -1.0}), Step("b", -2.0, {"b": -2.0, "c": -0.5})]
    other_draw = [before[0], Step("c", -0.5, {"b": -2.0, "c": -0.5}), Step("d", -9.0, {"d": -9.0})]
    rounded = [before[0], Step("b", -2.01, {"b": -2.01, "c": -0.5})]
    gone_on = (*before, Step("d", -3.0, {"d": -3.0}))
    assert is_exact([pair(Answer(gone_on), Answer(tuple(other_draw)))])
    assert not is_exact([pair(Answer(gone_on), Answer(tuple(rounded)))])


@pytest.mark.parametrize("seed", range(20))
def test_where_rounding_differs_other_tokens_pass_and_likelier_ones_do_not(seed):
    assert not is_exact(drawn(seed))
    assert judge_draws(drawn(seed), 4.0, repeats=True)[0]
    for shift in (0.8, -0.8):
        passed, reason = judge_draws(drawn(seed, shift), 4.0, repeats=True)
        assert not passed
        assert ("likelier" if shift > 0 else "less likely") in reason


def test_a_server_that_repeats_no_seed_is_judged_in_the_same_way():
    texts = [
        pair(answer("abcd", -1.0 - at % 3), answer("xyxy", -1.0 - (at + 1) % 3)) for at in range(9)
    ]
    assert not judge_draws(texts, 4.0, repeats=True)[0] or not is_exact(texts)
    assert judge_draws(texts, 4.0, repeats=False)[0]


def test_nothing_to_compare_is_no_pass():
    assert judge_draws([pair(answer("ab"), Answer())], 4.0, repeats=False) == (
        False,
        "too few log-probabilities came",
    )


@given(st.text("ab", max_size=8), st.text("ab", max_size=8))
def test_shares_are_shares(before, now):
    assert 0 <= diverging([pair(answer(before), answer(now))]) <= 1
