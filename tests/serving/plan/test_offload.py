"""Loading a cache against computing it again."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

LEDGER = {"active_params": "70.6B"}
ROW = {"mfu": "0.5", "prompts": "256,8k,32k,128k"}


@pytest.mark.proves("S071")
def test_reload_wins_above_9_2_gb_s_for_short_prompts_and_4_1_at_128k():
    values = ask("cache-offload", ROW, LEDGER).answer.values
    assert values["short_bytes_per_s"].to("GB/s") == pytest.approx(9.2, rel=0.01)
    assert round(values["break_even_bytes_per_s"].to("GB/s"), 1) == 4.1  # "about" in the row


def fastest(tokens, tiers, latencies):
    """By hand: recompute with attention on 8 x H100 at half the peak, or load."""
    work = 2 * 70.6e9 * tokens + 2 * tokens**2 * 64 * 128 * 80
    ways = {"recompute": work / (8 * 989.4e12 * 0.5)}
    for tier, rate in tiers.items():
        ways[tier] = latencies[tier] + tokens * 327_680 / rate
    best = min(ways, key=ways.get)
    return best, ways["recompute"] - ways[best]


@pytest.mark.proves("S071")
@pytest.mark.parametrize("host", [2e9, 5e9, 8e9, 50e9])
def test_each_length_is_sent_to_the_tier_that_is_fastest_and_told_what_it_saves(host):
    tiers = {"host": host, "disk": 4.5e9, "remote": 3e9}
    given = ROW | {f"{tier}_bytes_per_s": f"{rate}B/s" for tier, rate in tiers.items()}
    answer = ask("cache-offload", given, LEDGER).answer
    for tokens, row in zip((256, 8192, 32768, 131072), answer.table, strict=True):
        best, saved = fastest(tokens, tiers, {"host": 1e-3, "disk": 2e-3, "remote": 15e-3})
        assert row["take from"] == best
        assert row["saves"].value == pytest.approx(saved, rel=1e-6, abs=1e-12)


@pytest.mark.proves("S071")
def test_the_decision_flips_with_length_on_one_disk():
    given = ROW | {"host_bytes_per_s": "5GB/s", "disk_bytes_per_s": "5GB/s"}
    decisions = [row["take from"] for row in ask("cache-offload", given, LEDGER).answer.table]
    assert decisions == ["recompute", "recompute", "recompute", "host"]
