import pytest

from ridgeline.serving.policy.recover import (
    Found,
    Logged,
    Lost,
    Missing,
    Nothing,
    Patience,
    Wait,
    conclude,
)

PATIENCE = Patience(log_s=30, unknown_s=3)
UNKNOWN, SILENT = Missing.UNKNOWN, Missing.SILENT


def logged(
    prompt: int, completion: int, *, finished: bool = True, replica: str = "a", cached: int = 0
) -> Logged:
    return Logged(replica, prompt, cached, completion, finished)


def lost(
    *attempts: Logged | Missing, streamed: int = 0, after_s: float = 5, reserved: int = 99
) -> Lost:
    return Lost(attempts, streamed, reserved, after_s)


def tokens(conclusion: Found | Nothing | Wait) -> tuple[int, int, int]:
    assert isinstance(conclusion, Found), conclusion
    return conclusion.input_tokens, conclusion.cached_tokens, conclusion.output_tokens


def test_a_finished_log_is_believed_at_once_over_what_was_streamed() -> None:
    found = conclude(lost(logged(10, 7, cached=4), streamed=5, after_s=0), PATIENCE)
    assert tokens(found) == (10, 4, 7)
    assert isinstance(found, Found)
    assert found.basis == "replica log"


def test_an_attempt_that_was_given_up_before_its_first_byte_does_not_count() -> None:
    # The first replica had computed three tokens that nobody got.
    assert tokens(conclude(lost(logged(10, 3), logged(10, 8, replica="b")), PATIENCE)) == (10, 0, 8)


def test_of_a_stream_resumed_with_its_tokens_in_the_prompt_each_part_counts_once() -> None:
    # Six of nine tokens were delivered before the first replica died; five more came from another.
    attempts = logged(10, 9), logged(16, 5, replica="b", cached=16)
    assert tokens(conclude(lost(*attempts, streamed=11), PATIENCE)) == (10, 10, 11)


def test_of_a_stream_resumed_by_the_engine_the_last_log_has_it_all() -> None:
    assert tokens(conclude(lost(logged(10, 9), logged(10, 11)), PATIENCE)) == (10, 0, 11)


def test_of_a_resumed_stream_whose_first_log_is_gone_no_token_is_lost() -> None:
    assert tokens(conclude(lost(SILENT, logged(16, 5), after_s=31), PATIENCE)) == (16, 0, 5)


@pytest.mark.parametrize(
    ("state", "after_s", "reason"),
    [
        (lost(SILENT, after_s=29), 29, "does not answer"),
        (lost(logged(10, 5, finished=False), after_s=29), 29, "still generates"),
        (lost(UNKNOWN, after_s=2), 2, "may not have arrived"),
        (lost(SILENT, logged(10, 5), after_s=29), 29, "does not answer"),
    ],
)
def test_what_may_still_become_known_is_waited_for(
    state: Lost, after_s: float, reason: str
) -> None:
    conclusion = conclude(state, PATIENCE)
    assert isinstance(conclusion, Wait)
    assert reason in conclusion.reason


def test_a_replica_that_stays_silent_leaves_what_was_streamed() -> None:
    found = conclude(lost(SILENT, streamed=6, after_s=30), PATIENCE)
    assert tokens(found) == (99, 0, 6)
    assert isinstance(found, Found)
    assert found.basis == "streamed"


def test_a_log_that_never_finishes_counts_as_far_as_it_came() -> None:
    assert tokens(conclude(lost(logged(10, 5, finished=False), after_s=30), PATIENCE)) == (10, 0, 5)


def test_what_never_arrived_costs_nothing() -> None:
    assert isinstance(conclude(lost(UNKNOWN), PATIENCE), Nothing)


def test_of_a_retry_that_never_arrived_only_what_was_streamed_counts() -> None:
    assert isinstance(conclude(lost(logged(10, 5), UNKNOWN), PATIENCE), Nothing)
    resumed = lost(logged(10, 5, cached=8), UNKNOWN, streamed=4)
    assert tokens(conclude(resumed, PATIENCE)) == (10, 8, 4)


@pytest.mark.parametrize("last", [UNKNOWN, SILENT, logged(1, 1, finished=False), logged(1, 1)])
@pytest.mark.parametrize("first", [UNKNOWN, SILENT, logged(1, 1, finished=False), logged(1, 1)])
def test_nothing_stays_open_for_ever(first: Logged | Missing, last: Logged | Missing) -> None:
    for attempts in ((last,), (first, last)):
        assert not isinstance(conclude(lost(*attempts, after_s=30), PATIENCE), Wait)
