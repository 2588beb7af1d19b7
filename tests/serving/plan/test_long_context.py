"""Long contexts: the ledger's requests, and breaks checked against asking at those lengths."""

from collections.abc import Callable

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import Asked, ask

topics()

#: 70.6e9 parameters do the arithmetic, at 989e12 a card; a card is 80e9 bytes.
LEDGER = {
    "params": "70.6B",
    "active_params": "70.6B",
    "bf16_flop_per_s": "989 TFLOP/s",
    "memory_bytes": "80 GB",
}


def request(context: str, **given: str) -> Asked:
    return ask("long-context", {"context_tokens": context} | given, LEDGER)


def value(asked: Asked, name: str) -> float:
    return float(asked.answer.values[name].value)


@pytest.mark.proves("S067")
def test_one_128k_request_of_a_70b_holds_42_9_gb_and_waits_10_4_s_at_half_the_peak():
    asked = request("128k", mfu="0.5", gpus="8")
    assert value(asked, "cache_bytes") == pytest.approx(42.9e9, rel=0.01)
    assert value(asked, "time_to_first_token_s") == pytest.approx(10.4, rel=0.01)
    assert value(asked, "sequences_that_fit") == (8 * 80e9 * 0.9 - 141.2e9) // (131_072 * 327_680)
    # Which fix at which length: each break has one, in the order in which they come.
    at = [row["from"].value for row in asked.answer.table]
    assert at == sorted(at)
    assert all(row["what helps"] for row in asked.answer.table)


@pytest.mark.proves("S080")
def test_a_million_tokens_are_328_gb_grouped_or_70_gb_latent_and_6_1_minutes_to_the_first():
    grouped = request("1000000", mfu="0.5", gpus="8")
    assert value(grouped, "cache_bytes") == pytest.approx(328e9, rel=0.01)
    assert value(grouped, "time_to_first_token_s") / 60 == pytest.approx(6.1, rel=0.01)
    given = {"model": "deepseek-v3", "context_tokens": "1000000", "dtype": "fp8"}
    latent = ask("long-context", given | {"attention": "data"})
    assert value(latent, "cache_bytes") == pytest.approx(70e9, rel=0.01)
    assert value(ask("long-context", given), "resident_bytes") == pytest.approx(
        8 * 70.27e9, rel=0.01
    )
    assert len(grouped.answer.table) == 6


def crossing(holds: Callable[[int], bool]) -> int:
    """The longest context at which something still holds, by halving."""
    low, high = 1, 1 << 26
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("ttft", lambda asked: value(asked, "time_to_first_token_s") <= 10),
        ("attention", lambda asked: value(asked, "attention_share") <= 0.5),
        ("sequences", lambda asked: value(asked, "sequences_that_fit") >= 8),
        ("memory", lambda asked: value(asked, "sequences_that_fit") >= 1),
        ("tpot", lambda asked: value(asked, "step_s") <= 0.05),
    ],
)
def test_each_break_is_where_asking_at_that_length_says_so(
    name: str, holds: Callable[[Asked], bool]
):
    said = value(request("128k"), f"{name}_break_tokens")
    found = crossing(lambda context: holds(request(str(context))))
    assert said == pytest.approx(found, rel=0.001)


def test_attention_over_sequences_bounds_one_request_by_one_card_and_one_card_s_arithmetic():
    heads, data = (request("128k", attention=kind) for kind in ("tensor", "data"))
    # 434.8 GB over eight cards: 54.35 GB each hold one request of 42.95 GB, eight in all.
    assert value(heads, "sequences_that_fit") == 10
    assert value(data, "sequences_that_fit") == 8
    assert value(data, "memory_break_tokens") == pytest.approx(
        value(heads, "memory_break_tokens") / 8
    )
    assert value(data, "time_to_first_token_s") > 4 * value(heads, "time_to_first_token_s")


def test_an_fp8_cache_doubles_the_length_at_which_memory_breaks():
    wide, narrow = (request("128k", kv_dtype=kind) for kind in ("bf16", "fp8"))
    assert value(narrow, "memory_break_tokens") == 2 * value(wide, "memory_break_tokens")
    assert value(narrow, "ttft_break_tokens") == value(wide, "ttft_break_tokens")


def test_a_request_that_does_not_fit_is_answered_with_no():
    assert not request("2000000").answer.ok
