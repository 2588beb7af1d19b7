"""Prompt lookup."""

from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.engine import draft
from ridgeline.serving.engine.draft import Guesser, NgramDraft

TEXT = st.lists(st.integers(0, 3), max_size=80)


def looked_up(tokens: list[int], count: int) -> list[int]:
    """The same, slowly: the longest n-gram, its latest occurrence, round and round at the end."""
    for length in range(draft.LONGEST, draft.SHORTEST - 1, -1):
        for at in range(len(tokens) - 1, length - 1, -1):
            if length < len(tokens) and tokens[at - length : at] == tokens[-length:]:
                going = list(tokens)
                for ahead in range(count):
                    going.append(going[at + ahead])
                return going[len(tokens) :]
    return []


@given(TEXT, st.integers(0, 6))
def test_it_finds_what_a_search_would_find(tokens: list[int], count: int) -> None:
    assert NgramDraft().propose(tokens, count) == looked_up(tokens, count)


@given(TEXT, st.sets(st.integers(0, 80)))
def test_it_may_be_asked_at_any_time(tokens: list[int], asked: set[int]) -> None:
    one = NgramDraft()
    for size in sorted(asked):
        assert one.propose(tokens[:size], 3) == looked_up(tokens[:size], 3)


def test_what_followed_the_longest_and_latest_occurrence_is_proposed() -> None:
    tokens = [1, 2, 3, 4, 5, 9, 3, 4, 6, 9, 2, 3, 4]
    assert NgramDraft().propose(tokens, 3) == [5, 9, 3], "2 3 4 counts, not the later 3 4"
    assert NgramDraft().propose([7, 1, 2, 8, 1, 2, 9, 1, 2], 2) == [9, 1]


def test_a_text_that_goes_in_a_circle_is_proposed_beyond_its_end() -> None:
    assert NgramDraft().propose([5, 5, 5], 4) == [5] * 4
    assert NgramDraft().propose([1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]


def test_a_text_without_repetition_gets_no_proposal() -> None:
    assert NgramDraft().propose(list(range(100)), 4) == []
    assert NgramDraft().propose([], 4) == []


def test_an_index_holds_no_more_than_its_window(monkeypatch) -> None:
    monkeypatch.setattr(draft, "WINDOW", 64)
    one = NgramDraft()
    tokens = list(range(1_000))
    for size in range(0, 1_001, 7):
        one.propose(tokens[:size], 4)
        assert len(one._followed_at) <= 3 * 64
    assert one.propose([*tokens, 995, 996, 997], 2) == [998, 999]
    assert one.propose([*tokens, 995, 996, 997, 5, 6, 7], 2) == [], "forgotten"


def test_guesses_are_judged_by_what_came_run_or_not() -> None:
    guesser = Guesser(NgramDraft())
    text = [1, 2, 3, 4, 5, 1, 2]
    assert guesser.judged(text) == (0, 0)
    assert guesser.propose(text, 3) == [3, 4, 5]
    assert guesser.judged(text) == (0, 0), "nothing came"
    assert guesser.judged([*text, 3]) == (1, 1), "the others cannot be judged yet"
    assert guesser.judged([*text, 9]) == (0, 1)
    assert guesser.judged([*text, 3, 9, 9]) == (1, 2)
    assert guesser.judged([*text, 3, 4, 5, 6]) == (3, 3)
