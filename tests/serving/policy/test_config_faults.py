"""Each fault alone is named; a fault that explains another category's failure is named once."""

import pytest

from ridgeline.serving.policy.answers import Answer, Category, Pair, Step
from ridgeline.serving.policy.likeness import compare

RAW = {Category.CHARACTERS}


def steps(text, logprob, top=None):
    return tuple(Step(token, logprob, {top or token: logprob}) for token in text)


def pairs(seen=None, **known):
    """One prompt of each category, eight seeds; `seen` says what is otherwise, by category."""
    found = []
    for category in Category:
        size = 2000 if category is Category.LONG else 40
        before = Answer(steps("abcdefghij", -0.2), (1,) * 10, size, (7,) * size)
        now = (seen or {}).get(category, before)
        one = Pair(category, f"{category}/one", before, now, category in RAW)
        found += [one] * (8 if category is Category.DEFAULTS else 1)
    return found


def read(tokens, logprob=-0.2, text="abcdefghij"):
    return Answer(steps(text, logprob), (1,) * 10, tokens, (7,) * tokens)


def kinds(those, **options):
    return [fault.kind for fault in compare(those, **options).faults]


CHATS = [one for one in Category if one not in RAW and one is not Category.LONG]
SHORT = [*CHATS, Category.CHARACTERS]
WORSE = {one: read(40, -0.35) for one in SHORT if one is not Category.DEFAULTS}


@pytest.mark.parametrize(
    ("seen", "named"),
    [
        ({}, []),
        ({Category.LONG: read(1000)}, ["context"]),
        ({Category.LONG: Answer(refused="400 too long")}, ["context"]),
        ({Category.LONG: read(2000, -3.0)}, ["context"]),
        ({one: read(20, -3.0) for one in CHATS} | {Category.LONG: read(1980)}, ["template"]),
        ({one: read(41, -0.9) for one in SHORT} | {Category.LONG: read(2010, -0.9)}, ["tokenizer"]),
        (WORSE | {Category.LONG: read(2000, -0.35)}, ["dtype"]),
        ({one: read(40, -2.0) for one in SHORT}, ["weights"]),
        ({Category.DEFAULTS: read(40, -0.2, "abxxxxxxxx")}, ["sampling defaults"]),
        ({Category.STRUCTURED: Answer(refused="400 no schemas here")}, ["refused"]),
        ({Category.STRUCTURED: read(40, -3.0)}, ["structured output"]),
        ({one: read(20, -3.0) for one in CHATS} | {Category.LONG: read(900)},
         ["context", "template"]),
        ({one: read(20, -3.0) for one in CHATS} | {Category.CHARACTERS: read(40, -0.35)},
         ["template", "dtype"]),
    ],
)  # fmt: skip
def test_the_fault_is_named(seen, named):
    assert kinds(pairs(seen)) == named


def test_a_server_that_tells_no_ids_shows_another_template_by_what_it_answers():
    def blind(logprob):
        return Answer(steps("abcdefghij", logprob))

    those = [
        Pair(one, "p", blind(-0.2), blind(-0.2 if one in RAW else -1.5), one in RAW)
        for one in Category
    ]
    assert kinds(those)[0] == "template"


def test_draws_of_another_type_are_no_second_fault_where_they_are_as_likely():
    assert kinds(drawn(now="abxxxxxxxx", logprobs=(-0.21, -0.19))) == []
    seen = drawn(now="abxxxxxxxx", logprobs=(-0.05, -0.06))
    assert kinds(seen) == ["sampling defaults"]


def drawn(now, logprobs):
    """Eight answers to seeds, each of another likelihood than before, and rounded otherwise."""
    before = Answer(steps("abcdefghij", -0.2), (1,) * 10, 40, (7,) * 40)
    return [
        Pair(Category.DEFAULTS, "p", before, read(40, logprobs[seed % 2], now)) for seed in range(8)
    ]
