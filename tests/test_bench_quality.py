"""Divergences are those of the definition, and every variant is scored where it must be."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

pytest.importorskip("torch", reason="the benchmark runs the engine")
sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))  # scripts, not a package

import quality
from divergence import divergence, joined, log_softmax, summary
from quality import Passage, chosen, scored_logits, windows

logits = arrays(np.float32, (3, 7), elements=st.floats(-50, 50, width=32))


@given(logits)
def test_log_probabilities_sum_to_one_however_large_the_logits(drawn: np.ndarray) -> None:
    assert np.exp(log_softmax(drawn)).sum(axis=1) == pytest.approx([1, 1, 1])


@given(logits, st.floats(-30, 30, width=32))
def test_a_model_does_not_diverge_from_itself_nor_from_a_shift_of_its_logits(
    drawn: np.ndarray, shift: float
) -> None:
    found = divergence(drawn, drawn.astype(np.float64) + shift, [0, 1, 2])
    assert found.kl == pytest.approx([0, 0, 0], abs=1e-6)
    assert found.lost == pytest.approx([0, 0, 0], abs=1e-6)


@given(logits, logits)
def test_divergence_is_never_negative(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert (divergence(ours, theirs, []).kl >= 0).all()


def test_divergence_is_the_expectation_under_the_reference() -> None:
    ours, theirs = np.log([[0.5, 0.5]]), np.log([[0.9, 0.1]])
    found = divergence(ours, theirs, [1])
    assert found.kl[0] == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1))
    assert found.lost[0] == pytest.approx(math.log(0.5 / 0.1))
    assert found.same_top.tolist() == [True]  # of equals the first


def test_a_summary_counts_positions_and_takes_tails_from_above() -> None:
    one = divergence(np.log([[0.5, 0.5]]), np.log([[0.9, 0.1]]), [1])
    same = divergence(np.log([[0.6, 0.4]] * 9), np.log([[0.6, 0.4]] * 9), [0] * 9)
    found = summary(joined([same, one]))
    assert found.positions == 10
    assert found.kl_p99 == found.kl_max == one.kl[0]
    assert found.kl_mean == pytest.approx(one.kl[0] / 10)
    assert found.perplexity_ratio == pytest.approx(5 ** (1 / 10))
    assert found.top1_agreement == 1.0


def test_stretches_do_not_overlap_and_are_spread_over_all_texts() -> None:
    texts = [range(25), range(100, 103), range(200, 250)]
    found = windows(texts, 3, 10)
    assert [passage.tokens[0] for passage in found] == [0, 200, 220]
    assert {(len(passage.tokens), passage.scored) for passage in found} == {(10, 9)}
    with pytest.raises(ValueError, match="hold 7 stretches of 10 tokens, not 8"):
        windows(texts, 8, 10)


def test_greedy_takes_the_largest_and_sampling_follows_the_distribution() -> None:
    chance = np.random.default_rng(0)
    drawn = np.log(np.array([0.2, 0.7, 0.1]))
    assert chosen(drawn, 0.0, chance) == 1
    counts = np.bincount([chosen(drawn, 1.0, chance) for _ in range(4000)], minlength=3)
    assert counts / 4000 == pytest.approx([0.2, 0.7, 0.1], abs=0.03)


@given(st.integers(2, 400), st.data())
def test_each_scored_token_is_predicted_once_by_the_row_before_it(
    length: int, data: st.DataObject
) -> None:
    scored = data.draw(st.integers(1, length - 1))
    fed: list[int] = []

    def remember(runner: object, rows: list[int], start: int, wanted: int) -> np.ndarray:
        assert start == len(fed), "the cache has all that came before"
        fed.extend(rows)
        return np.arange(start + len(rows) - wanted, start + len(rows))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(quality, "logits_of", remember)
        passage = Passage("text", list(range(length)), scored)
        found = list(scored_logits("runner", passage))
    assert fed == passage.tokens[:-1]
    rows = [row for at, said in found for row in said.tolist() if said[0] == at]
    assert rows == list(range(length - 1 - scored, length - 1))


def test_full_size_has_four_thousand_positions_and_quick_six_hundred() -> None:
    assert quality.FULL.windows * (quality.FULL.window - 1) >= 4000
    quick = quality.QUICK
    said = 2 * quick.prompts * quick.said
    assert 500 <= quick.windows * (quick.window - 1) + said / 2 <= 800


def test_an_unknown_variant_is_refused_with_the_names_that_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench/quality.py", "--variant", "int4"])
    with pytest.raises(SystemExit):
        quality.main()
    assert "int8/int8" in capsys.readouterr().err
