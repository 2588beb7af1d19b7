from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.sizes import Sizes, estimate, expected, learned


def test_before_anything_is_known_two_bytes_are_a_token() -> None:
    assert estimate(Sizes(), 1_000 - 64) == 500


def test_more_tokens_than_expected_are_believed_at_once() -> None:
    known = learned(Sizes(), 1_000, 900)
    assert estimate(known, 1_000) >= 900


def test_it_comes_down_slowly_to_what_is_usual() -> None:
    known = Sizes()
    for _ in range(1_000):
        known = learned(known, 4_000, 1_000)
    assert 1_000 <= estimate(known, 4_000) <= 1_010


def test_one_odd_prompt_is_forgotten_again() -> None:
    known = learned(Sizes(1 / 4), 1_000, 1_000)
    for _ in range(400):
        known = learned(known, 4_000, 1_000)
    assert estimate(known, 4_000) < 1_050


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7))), st.integers(0, 10**9))
def test_whatever_replicas_say_it_stays_in_its_bounds(
    answers: list[tuple[int, int]], prompt_bytes: int
) -> None:
    known = Sizes()
    for size_bytes, size_tokens in answers:
        known = learned(known, size_bytes, size_tokens)
    assert (prompt_bytes + 64) / 16 <= estimate(known, prompt_bytes) <= prompt_bytes + 64


def test_the_mean_is_neither_the_upper_end_nor_the_first_guess_for_long() -> None:
    sizes = Sizes()
    for tokens in (200, 300) * 100:  # a quarter of a token for each byte, in the middle
        sizes = learned(sizes, 936, tokens)
    assert 235 <= expected(sizes, 936) <= 265
    assert estimate(sizes, 936) > expected(sizes, 936)
    assert expected(Sizes(), 936) == 250
