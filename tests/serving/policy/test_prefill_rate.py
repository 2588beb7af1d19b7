"""The peak prefill rate that was met."""

from ridgeline.serving.policy.prefill_rate import LEAST_TOKENS, PeakRate

MS = 1_000_000


def seen(*prompts: tuple[int, int]) -> PeakRate:
    rate = PeakRate()
    for tokens, took_ns in prompts:
        rate = rate.saw(tokens, took_ns)
    return rate


def test_until_some_prompts_were_seen_it_is_assumed_and_says_so() -> None:
    assert seen(*[(2000, 100 * MS)] * 3).source == "assumed 8,000 tokens/s"


def test_then_it_is_measured() -> None:
    rate = seen(*[(2000, 100 * MS)] * 4)
    assert rate.tokens_per_s == 20_000
    assert rate.source == "measured 20,000 tokens/s over 4 prompts"


def test_a_prompt_that_fills_no_step_says_nothing() -> None:
    assert seen(*[(LEAST_TOKENS - 1, 100 * MS)] * 9) == PeakRate()


def test_one_prompt_whose_text_was_cached_unknown_to_us_does_not_count() -> None:
    rate = seen(*[(2000, 100 * MS)] * 19, (2000, 1 * MS))
    assert rate.tokens_per_s == 20_000


def test_what_was_long_ago_is_forgotten() -> None:
    assert seen(*[(2000, 10 * MS)] * 64, *[(2000, 100 * MS)] * 64).tokens_per_s == 20_000
