import pytest

from ridgeline.serving.bench.sample import Answer, Sample


def sample(**answer) -> Sample:
    seen = {"sent_s": 1.5, "ended_s": 3.0, "token_times_s": (2.0, 2.2, 2.6)} | answer
    return Sample(0, 1.0, 10, 3, Answer(**seen))


def test_measures_follow_their_definitions():
    seen = sample(output_tokens=3)
    assert seen.ok
    assert seen.lag_s == 0.5
    assert seen.ttft_s == 0.5
    assert seen.scheduled_ttft_s == 1.0
    assert seen.tpot_s == pytest.approx(0.6 / 2)
    assert seen.gaps_s == pytest.approx([0.2, 0.4])
    assert seen.e2e_s == 1.5
    assert seen.scheduled_e2e_s == 2.0


def test_tokens_are_counted_by_usage_and_else_by_pieces():
    assert sample(output_tokens=7).output_tokens == 7
    assert sample().output_tokens == 3


def test_pace_is_per_token_where_a_piece_holds_several():
    assert sample(output_tokens=7).tpot_s == pytest.approx(0.6 / 6)


@pytest.mark.parametrize("times", [(), (2.0,)])
def test_one_token_has_no_pace(times):
    assert sample(token_times_s=times).tpot_s is None
    assert sample(token_times_s=times).gaps_s == []


def test_a_failed_or_empty_answer_is_not_ok():
    assert not sample(error="timeout").ok
    assert not sample(token_times_s=()).ok
    assert sample(token_times_s=()).ttft_s is None
