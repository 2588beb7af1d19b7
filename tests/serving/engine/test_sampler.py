"""Every rule against a plain implementation, and that a row never depends on its batch."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ways_to_draw import WAYS, draws

from ridgeline.serving.engine.messages import Sampling
from ridgeline.serving.engine.sampler import Chosen, Sampler, State, fresh_seed

VOCAB = 97
EOS = 2


way = WAYS[0]


@pytest.fixture(scope="module", params=WAYS, autouse=True)
def _each_way(request: pytest.FixtureRequest) -> None:
    global way  # hypothesis wants no fixtures that are made anew for each test
    way = request.param


def sampler(vocab: int = VOCAB, **options: Any) -> Sampler:
    return Sampler(vocab, (EOS,), draws=draws(way, vocab), **options)


def noise(rows: int, seed: int, spread: float = 3.0) -> Any:
    values = np.random.default_rng(seed).standard_normal((rows, VOCAB)) * spread
    return values.astype(np.float32)


def zeros(rows: int) -> Any:
    return np.zeros((rows, VOCAB), np.float32)


def log_softmax(logits_V: Any) -> Any:
    exact = logits_V.astype(np.float64)
    return exact - np.log(np.exp(exact).sum())


def one(logits: Any, rules: Sampling, prompt: list[int] | None = None) -> Chosen:
    row = np.asarray(logits, np.float32)[None]
    made = sampler(row.shape[1])
    return made.sample(row, [made.open(rules, prompt or [], 0)])[0]


class Only:
    """A grammar's place in which always the same tokens are allowed."""

    def __init__(self, *allowed: int, fails: bool = False) -> None:
        self.tokens = allowed
        self.taken: list[int] = []
        self.finished = False
        self.fails = fails

    def allowed(self) -> Any:
        if self.fails:
            raise ValueError("too costly")
        allowed = np.zeros(VOCAB, np.bool_)
        allowed[list(self.tokens)] = True
        return allowed

    def accept(self, token: int) -> None:
        self.taken.append(token)


SAMPLING = st.builds(
    Sampling,
    max_tokens=st.just(50),
    temperature=st.sampled_from([0.0, 0.5, 1.0, 1.7]),
    top_p=st.sampled_from([1.0, 0.9, 0.4]),
    top_k=st.sampled_from([0, 1, 10]),
    min_p=st.sampled_from([0.0, 0.05]),
    seed=st.integers(-(2**63), 2**63 - 1),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    presence_penalty=st.sampled_from([0.0, 0.7, -0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100), max_size=4),
    stop_token_ids=st.sampled_from([(), (5,), (5, 96, 10**6)]),
    min_tokens=st.sampled_from([0, 2]),
    logprobs=st.sampled_from([None, 0, 3]),
)


@settings(deadline=None, max_examples=50)
@given(st.lists(SAMPLING, min_size=2, max_size=6), st.integers(0, 2**32))
def test_what_a_row_yields_does_not_depend_on_its_batch(rules: list[Sampling], seed: int) -> None:
    steps = [noise(len(rules), seed + step) for step in range(4)]
    together = sampler()
    states = [together.open(each, [1, 2, 3], index) for index, each in enumerate(rules)]
    batched = [together.sample(logits, states) for logits in steps]
    for index, each in reversed(list(enumerate(rules))):
        alone = sampler()
        state = alone.open(each, [1, 2, 3], index)
        for step, logits in enumerate(steps):
            assert alone.sample(logits[index : index + 1], [state]) == [batched[step][index]]


def adjusted(logits: Any, rules: Sampling, prompt: list[int], output: list[int]) -> Any:
    """The rules before temperature, a token at a time, in float64."""
    row = logits.astype(np.float64)
    for token, bias in rules.logit_bias.items():
        row[token] += bias
    for token in range(len(row)):
        if token in prompt or token in output:
            factor = rules.repetition_penalty
            row[token] = row[token] / factor if row[token] > 0 else row[token] * factor
        count = output.count(token)
        row[token] -= rules.frequency_penalty * count
        row[token] -= rules.presence_penalty * (count > 0)
        if len(output) < rules.min_tokens and token in (EOS, *rules.stop_token_ids):
            row[token] = -np.inf
    return row


@settings(deadline=None, max_examples=50)
@given(
    SAMPLING,
    st.lists(st.integers(0, VOCAB - 1), max_size=30),
    st.integers(0, 2**32),
    st.integers(1, 100),
)
def test_greedy_takes_the_largest_after_bias_penalties_and_masks(
    rules: Sampling, prompt: list[int], seed: int, steps: int
) -> None:
    made = sampler()
    greedy = Sampling(**{**_fields(rules), "temperature": 0.0})
    state = made.open(greedy, prompt, 0)
    output: list[int] = []
    for logits in noise(steps, seed, spread=0.5):
        expected = adjusted(logits, greedy, prompt, output)
        token = made.sample(logits[None], [state])[0].token
        assert expected[token] >= expected.max() - 1e-4
        output.append(token)


def _fields(rules: Sampling) -> dict[str, Any]:
    return {name: getattr(rules, name) for name in rules.__struct_fields__}


def test_greedy_takes_the_first_of_equals() -> None:
    assert one([1, 7, 7, 3], Sampling(1, temperature=0)).token == 1


def test_a_temperature_too_small_to_divide_by_is_greedy() -> None:
    assert one([1, 7, 6.999, 3], Sampling(1, temperature=1e-310)).token == 1


def test_tokens_come_as_often_as_their_probabilities_say() -> None:
    made = sampler()
    logits = noise(1, 3, spread=1.0)
    rules = Sampling(1, temperature=0.8, top_k=12, seed=11)
    states = [made.open(rules, [], index) for index in range(8_000)]
    counts = Counter(each.token for each in made.sample(logits.repeat(8_000, axis=0), states))
    kept = np.argsort(-logits[0])[:12]
    expected = np.exp(log_softmax(logits[0, kept] / 0.8)) * 8_000
    came = np.array([counts[token] for token in kept])
    chi_square = ((came - expected) ** 2 / expected).sum()
    assert came.sum() == 8_000
    assert chi_square < 31.3  # 11 degrees of freedom: exceeded once in a thousand


def run(made: Sampler, state: State, steps: int = 20) -> list[int]:
    return [made.sample(noise(1, step), [state])[0].token for step in range(steps)]


def test_a_seed_repeats_itself_and_its_indices_differ() -> None:
    made = sampler()
    rules = Sampling(50, seed=4)
    first, again, other = (run(made, made.open(rules, [], index)) for index in (0, 0, 1))
    assert first == again
    assert first != other


def test_without_a_seed_each_continuation_is_given_one() -> None:
    seeds = iter([8, 9])
    made = sampler(seeds=lambda: next(seeds))
    rules = Sampling(50)
    unseeded = [run(made, made.open(rules, [], 0)) for _ in range(2)]
    seeded = [run(made, made.open(Sampling(50, seed=seed), [], 0)) for seed in (8, 9)]
    assert unseeded == seeded
    assert unseeded[0] != unseeded[1]
    assert fresh_seed() != fresh_seed()


def test_min_tokens_forbids_an_end_and_no_longer_than_that() -> None:
    made = sampler()
    logits = zeros(1)
    logits[0, EOS], logits[0, 5], logits[0, 6] = 9, 8, 7
    rules = Sampling(9, temperature=0, min_tokens=2, stop_token_ids=(5,))
    state = made.open(rules, [], 0)
    assert [made.sample(logits, [state])[0].token for _ in range(3)] == [6, 6, EOS]


def test_ignore_eos_does_not_keep_the_end_from_being_chosen() -> None:
    logits = np.zeros(VOCAB)
    logits[EOS] = 9
    assert one(logits, Sampling(9, temperature=0, ignore_eos=True)).token == EOS


def test_bias_comes_before_the_repetition_penalty() -> None:
    # (1 + 4) / 2 = 2.5 beats 2; the other way round 1/2 + 4 = 4.5 would beat 3 as well.
    rules = Sampling(1, temperature=0, logit_bias={0: 4.0}, repetition_penalty=2.0)
    assert one([1, 2, 0, 0], rules, prompt=[0]).token == 0
    assert one([1, 3, 0, 0], rules, prompt=[0]).token == 1


def test_the_grammar_decides_over_bias() -> None:
    made = sampler()
    grammar = Only(7, 8)
    rules = Sampling(1, temperature=0, logit_bias={8: 5.0, 9: 100.0})
    state = made.open(rules, [], 0, grammar)  # type: ignore[arg-type]
    assert made.sample(zeros(1), [state])[0].token == 8
    assert grammar.taken == [8]
    assert not state.complete


def test_a_grammar_that_has_ended_ends_in_spite_of_min_tokens() -> None:
    made = sampler()
    rules = Sampling(9, min_tokens=5)
    ended = made.open(rules, [], 0, Only(EOS))  # type: ignore[arg-type]
    open_ = made.open(rules, [], 0, Only(EOS, 30))  # type: ignore[arg-type]
    logits = zeros(2)
    logits[:, EOS] = 50
    assert [each.token for each in made.sample(logits, [ended, open_])] == [EOS, 30]


def test_a_grammar_that_fails_ends_its_own_row_only() -> None:
    made = sampler()
    failing = made.open(Sampling(9), [], 0, Only(fails=True))  # type: ignore[arg-type]
    fine = made.open(Sampling(9), [], 0)
    first, second = made.sample(noise(2, 0), [failing, fine])
    assert first.error == "too costly"
    assert second.error == ""
    assert fine.position == 1


def test_a_grammar_whose_tokens_the_model_finds_impossible_is_an_error() -> None:
    made = sampler()
    state = made.open(Sampling(9), [], 0, Only(4))  # type: ignore[arg-type]
    logits = zeros(1)
    logits[0, 4] = -np.inf
    assert "impossible" in made.sample(logits, [state])[0].error


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("rules", [Sampling(1, temperature=0), Sampling(1, top_p=0.9, logprobs=2)])
@settings(deadline=None, max_examples=20)
@given(at=st.integers(0, VOCAB - 1))
def test_a_broken_row_is_an_error_and_the_others_go_on(
    broken: float, rules: Sampling, at: int
) -> None:
    made = sampler()
    states = [made.open(rules, [], index) for index in range(3)]
    logits = noise(3, 1)
    logits[1, at] = broken
    first, second, third = made.sample(logits, states)
    assert "largest logit is" in second.error
    assert second.logprob is None
    assert (first.error, third.error) == ("", "")
    assert [state.position for state in states] == [1, 0, 1]


def test_a_row_of_nothing_but_minus_infinity_is_an_error() -> None:
    assert one(np.full(VOCAB, -np.inf), Sampling(1)).error


def test_logprobs_are_of_the_raw_logits_whatever_the_rules() -> None:
    logits = noise(1, 6)
    rules = Sampling(
        1, temperature=0.3, top_k=2, logit_bias={7: 50.0}, repetition_penalty=1.5, logprobs=4
    )
    chosen = one(logits[0], rules, prompt=[1, 2])
    expected = log_softmax(logits[0])
    assert chosen.logprob is not None
    assert chosen.token == 7
    assert chosen.logprob.logprob == pytest.approx(float(expected[7]), abs=1e-5)
    ids = np.argsort(-expected)[:4]
    assert [token for token, _ in chosen.logprob.top] == ids.tolist()
    assert [value for _, value in chosen.logprob.top] == pytest.approx(
        expected[ids].tolist(), abs=1e-5
    )


def test_logprobs_can_be_of_the_chosen_token_alone() -> None:
    chosen = one([0, 0], Sampling(1, temperature=0, logprobs=0))
    assert chosen.logprob is not None
    assert chosen.logprob.logprob == pytest.approx(-np.log(2))
    assert chosen.logprob.top == []
    assert one([0, 0], Sampling(1)).logprob is None


def test_an_impossible_alternative_has_a_number_that_json_can_say() -> None:
    chosen = one([0, -np.inf], Sampling(1, temperature=0, logprobs=2))
    assert chosen.logprob is not None
    assert chosen.logprob.top == [(0, 0.0), (1, -9999.0)]


@pytest.mark.parametrize(
    ("rules", "prompt"),
    [
        (Sampling(1, logit_bias={VOCAB: 1.0}), []),
        (Sampling(1, logit_bias={-1: 1.0}), []),
        (Sampling(1, presence_penalty=1.0), [0, VOCAB]),
    ],
)
def test_tokens_outside_the_vocabulary_are_refused(rules: Sampling, prompt: list[int]) -> None:
    with pytest.raises(ValueError, match="outside the vocabulary of 97"):
        sampler().open(rules, prompt, 0)


def test_the_logits_are_left_as_they_were() -> None:
    logits = noise(2, 9)
    before = logits.copy()
    made = sampler()
    rules = Sampling(1, repetition_penalty=2.0, logit_bias={1: 3.0}, top_p=0.5, logprobs=3)
    made.sample(logits, [made.open(rules, [1, 2], index) for index in range(2)])
    assert (logits == before).all()


def test_rows_of_one_state_are_its_next_tokens_one_after_the_other() -> None:
    rules = Sampling(50, seed=3, frequency_penalty=1.5, min_tokens=2)
    logits = noise(6, 2)
    made = sampler()
    together, apart, other = (made.open(rules, [1], index) for index in (0, 0, 1))
    chosen = made.sample(logits, [together, together, other, together, together, together])
    mine = [each for at, each in enumerate(chosen) if at != 2]
    assert mine == [made.sample(logits[at : at + 1], [apart])[0] for at in (0, 1, 3, 4, 5)]
