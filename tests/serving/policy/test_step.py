"""A step as a value."""

import pytest

from ridgeline.serving.policy.sequence import Sequence
from ridgeline.serving.policy.step import Chunk, Draft, Limits, Step


def step(*chunks: Chunk) -> Step:
    return Step(chunks, (), (), (), ())


@pytest.mark.parametrize(("seqs", "budget"), [(0, 8), (9, 8), (-1, 1)])
def test_a_step_has_a_token_for_every_seat(seqs: int, budget: int) -> None:
    with pytest.raises(ValueError, match="max_seqs"):
        Limits(seqs, budget)


def test_its_rows_are_those_of_its_chunks() -> None:
    assert step().tokens == 0
    assert step(Chunk("a", 0, 5, False), Chunk("b", 7, 1, True)).tokens == 6


def test_it_decodes_where_each_row_gives_a_token() -> None:
    assert step(Chunk("a", 7, 1, True), Chunk("b", 7, 3, True, guesses=2)).decodes
    assert not step(Chunk("a", 7, 1, True), Chunk("b", 0, 3, True)).decodes
    assert not step(Chunk("a", 0, 1, False)).decodes


def test_a_draft_spends_tokens_and_gets_those_of_a_dropped_one_back() -> None:
    draft = Draft(10)
    long = Sequence("long", (0, 1, 0), 12, 12, 20, [])
    short = Sequence("short", (0, 2, 0), 3, 3, 20, [])
    draft.take(long, 6)
    draft.take(short, 3)
    assert draft.budget == 1
    draft.drop(long)
    draft.drop(long)
    assert draft.budget == 7
    made = draft.step()
    assert made.chunks == (Chunk("short", 0, 3, True),)
    assert made.reasons == ("long computes 6 of the 12 tokens it owes",)
