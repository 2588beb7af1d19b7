from math import isfinite, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.answers import (
    Answer,
    Category,
    Pair,
    Step,
    common,
    measure,
)


def step(token, logprob=-0.1, **top):
    return Step(token, logprob, {token: logprob, **top})


def answer(text, logprob=-0.1, **known):
    return Answer(tuple(step(token, logprob) for token in text), **known)


def pair(before, now, category=Category.CHAT):
    return Pair(category, "p", before, now)


logprob = st.floats(-20, 0)
steps = st.lists(st.tuples(st.sampled_from("abc"), logprob), max_size=8)


@given(steps)
def test_an_answer_is_like_itself(told):
    one = Answer(tuple(step(*each) for each in told))
    measured = measure([pair(one, one)])
    if told:
        assert (measured.positions, measured.difference, measured.same_top) == (len(told), 0, 1)
    else:
        assert measured is None


@given(steps, steps)
def test_differences_and_shares_keep_their_bounds(before, now):
    those = [pair(*(Answer(tuple(step(*each) for each in told)) for told in (before, now)))]
    measured = measure(those)
    if measured is not None:
        assert 0 <= measured.difference <= 10
        assert 0 <= measured.same_top <= 1


def test_the_likeliest_tokens_count_as_much_as_they_are_likely():
    before = Step("a", log(0.6), {"a": log(0.6), "b": log(0.2)})
    now = Step("a", log(0.6) - 0.1, {"a": log(0.6) - 0.1, "b": log(0.2) - 0.9})
    assert before.difference(now) == pytest.approx((0.6 * 0.1 + 0.2 * 0.9) / 0.8)


def test_a_token_that_was_taken_against_the_odds_hardly_counts():
    """As where a grammar allows nothing else: its log-probability is mostly rounding."""
    before = Step("{", -9.0, {"{": -9.0, "a": -0.1})
    assert before.difference(Step("{", -7.0, {"{": -7.0, "a": -0.1})) < 0.001


def test_of_a_token_that_is_not_told_the_least_difference_counts():
    now = Step("b", -0.4, {"b": -0.4, "c": -3.1})
    assert Step("a", -0.1, {"a": -0.1}).difference(now) == pytest.approx(3.0)


def test_an_answer_that_goes_on_where_the_other_ended_differs_at_one_place():
    assert measure([pair(answer("aaa"), answer("aaaaaaa"))]).same_top == pytest.approx(3 / 4)


def test_greedy_takes_the_likeliest_whatever_was_drawn():
    assert Step("rare", -5.0, {"rare": -5.0, "usual": -0.2}).likeliest == "usual"


def test_shared_tokens_are_counted_to_the_first_other_one():
    assert common(answer("abcd").steps, answer("abxd").steps) == 2


@pytest.mark.parametrize(
    ("before", "now", "is_same"),
    [
        ({"prompt_ids": (1, 2)}, {"prompt_ids": (1, 2)}, True),
        ({"prompt_ids": (1, 2)}, {"prompt_ids": (2, 1)}, False),
        ({"prompt_tokens": 2}, {"prompt_tokens": 3}, False),
        ({"prompt_tokens": 2, "prompt_ids": (1, 2)}, {"prompt_tokens": 2}, True),
        ({}, {"prompt_tokens": 3}, True),
    ],
)
def test_prompts_are_the_same_as_far_as_servers_tell(before, now, is_same):
    assert pair(Answer(**before), Answer(**now)).has_same_prompt is is_same


def test_nothing_is_infinite():
    assert isfinite(Step("a", -1.0, {}).logprob_of("b"))
