"""Long sequences over ranks: the ledger's bytes, and a ring simulated hop by hop."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


@pytest.mark.proves("S044")
def test_128k_at_width_16384_is_73_gb_a_layer_and_4_56_gb_at_16_ranks():
    values = ask(
        "context-parallel",
        {
            "model": "llama-3.1-405b",
            "sequence_tokens": "131072",
            "context_ranks": 16,
            "block": "gelu",
        },
    ).answer.values
    assert values["bytes_per_layer"].value == pytest.approx(73.0e9, rel=0.01)
    assert values["bytes_per_context_rank"].value == pytest.approx(4.56e9, rel=0.01)
    for name in ("ring_s", "scores_s", "exposed_s"):
        assert name in values


@pytest.mark.parametrize("link", ["400 Gb/s", "20 Gb/s"])
def test_what_is_seen_of_the_ring_is_what_a_hop_by_hop_walk_sees(link: str):
    ranks, tensor, sequence = 16, 8, 131072
    values = ask("context-parallel", {"link": link}).answer.values
    rate = float(link.split()[0]) * 1e9 / 8
    hop = 2 * 1 * 128 * 2 * (sequence / ranks) / rate  # one KV head of 8 a tensor rank
    causal = 2 * sequence**2 * 128 * 128 / tensor / ranks
    compute = causal / (0.4 * 989.4e12) / ranks  # of one of the 16 blocks
    clock = 0.0
    for _ in range(ranks - 1):  # while a block is multiplied, the next one arrives
        clock += max(hop, compute)
    clock += compute
    assert values["exposed_s"].value == pytest.approx(clock - ranks * compute, abs=1e-12)
    assert values["scores_s"].value == pytest.approx(ranks * compute)


def test_gathering_before_the_scores_hides_nothing():
    ring, gather = (
        ask("context-parallel", {"exchange": way}).answer.values["exposed_s"].value
        for way in ("ring", "gather")
    )
    assert ring == 0
    assert gather > 0


def test_a_ring_at_the_least_local_tokens_is_as_long_as_its_scores():
    least = ask("context-parallel").answer.values["least_local_tokens"].value
    ranks = 16
    for factor, hidden in ((1.01, True), (0.99, False)):
        sequence = round(least * factor / 2) * 2 * ranks
        found = ask("context-parallel", {"sequence_tokens": str(sequence)})
        assert (found.answer.values["exposed_s"].value == 0) is hidden


def test_a_sequence_that_does_not_split_evenly_is_refused():
    with pytest.raises(SpecError, match="do not divide"):
        ask("context-parallel", {"sequence_tokens": "100001"})
