"""Which rows count: up to the first token that was not guessed, or the end."""

import numpy as np
import pytest

from ridgeline.serving.engine.lines import Line, draw_lines
from ridgeline.serving.engine.messages import Add, Sampling
from ridgeline.serving.engine.sampler import Sampler
from ridgeline.serving.engine.sequence import Continuation

VOCAB, EOS = 20, 2
SAMPLER = Sampler(VOCAB, (EOS,))


def sequence(**rules) -> Continuation:
    add = Add("r", [5, 6], Sampling(**{"max_tokens": 20, "temperature": 0, **rules}))
    return Continuation(add, 0, [5, 6], SAMPLER.open(add.sampling, [5, 6], 0), b"")


def saying(*tokens: int) -> np.ndarray:
    """Rows of logits, each of which is certain of one token; -1 makes a row of NaN."""
    rows = np.full((len(tokens), VOCAB), -5.0, np.float32)
    for row, token in enumerate(tokens):
        rows[row, token] = 5.0
        if token < 0:
            rows[row] = np.nan
    return rows


def drawn(guesses: list[int], said: list[int], **rules) -> tuple[list[int], str | None, int]:
    """The tokens, the finish and how many guesses held, of rows that would say `said`."""
    line = Line(sequence(**rules), 0, guesses)
    draw_lines(SAMPLER, [line], saying(*said), (EOS,))
    assert line.sequence.tokens == [5, 6, *line.said]
    assert bool(line.error) == (line.finish == "error")
    return line.sequence.tokens[2:], line.finish, line.held


def test_guesses_are_kept_to_the_first_that_was_wrong() -> None:
    assert drawn([], [7]) == ([7], None, 0)
    assert drawn([7, 8], [7, 8, 9]) == ([7, 8, 9], None, 2)
    assert drawn([7, 8], [7, 9, 9]) == ([7, 9], None, 1)
    assert drawn([7, 8], [9, 8, 9]) == ([9], None, 0), "8 stood behind a 7 that nobody said"


@pytest.mark.parametrize(
    ("said", "rules", "tokens", "finish"),
    [
        ([7, EOS, 8, 9], {}, [7, EOS], "stop"),
        ([7, EOS, 8, 9], {"ignore_eos": True}, [7, EOS, 8, 9], None),
        ([7, 8, 9, 10], {"stop_token_ids": (8,)}, [7, 8], "stop"),
        ([7, 8, 9, 10], {"max_tokens": 3}, [7, 8, 9], "length"),
        ([7, 8, 9, 10], {"max_tokens": 1}, [7], "length"),
    ],
)
def test_an_end_among_guesses_is_the_end(said, rules, tokens, finish) -> None:
    assert drawn(said[:-1], said, **rules)[:2] == (tokens, finish)


def test_an_end_counts_from_its_least_number_of_tokens_on() -> None:
    """Before that the sampler says something else, which nobody has guessed."""
    rules = {"stop_token_ids": (8,), "min_tokens": 2}
    said, finish, held = drawn([7, 8, 8], [7, 8, 8, 9], **rules)
    assert (len(said), finish, held) == (2, None, 1)
    assert drawn([7, 9, 8], [7, 9, 8, 9], **rules) == ([7, 9, 8], "stop", 2)


def test_a_row_that_fails_takes_nothing_back_and_one_that_does_not_count_fails_nobody() -> None:
    assert drawn([7, 8], [7, -1, 9]) == ([7], "error", 1)
    assert drawn([7, 8], [9, -1, -1]) == ([9], None, 0)


def test_lines_of_all_lengths_are_drawn_beside_each_other() -> None:
    lines = [
        Line(sequence(logprobs=0), 0, [7]),
        Line(sequence(), 2),
        Line(sequence(), 2),  # a second answer to the same prompt
        Line(sequence(logprobs=1), 3, [8, 9, 10]),
    ]
    draw_lines(SAMPLER, lines, saying(7, 11, 12, 8, 9, 13, 14), (EOS,))
    assert [line.sequence.tokens[2:] for line in lines] == [[7, 11], [12], [12], [8, 9, 13]]
    assert [len(line.logprobs) for line in lines] == [2, 0, 0, 3]
    assert [line.held for line in lines] == [1, 0, 0, 2]
