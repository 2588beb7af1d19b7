"""Guesses change how many steps an answer takes, and no token of it: whole engines, both ways."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import EOS_ID, write_tiny

from ridgeline.serving.engine.cache import block_bytes
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.loop import Engine
from ridgeline.serving.engine.messages import Abort, Add, Logprob, Output, Sampling, Stats
from ridgeline.serving.engine.model_files import open_model

Said = dict[tuple[str, int], list[Output]]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "llama"
    write_tiny(folder, "llama")
    return folder


def engine_of(
    model: Path,
    speculation: str = "ngram",
    *,
    blocks: int = 200,
    now_s: Callable[[], float] | None = None,
    **settings: Any,
) -> Engine:
    """fp32, one thread, so many blocks; all steps take as long, so that every guess may pay."""
    size = block_bytes(open_model(model).architecture, 16, "fp32") * blocks
    settings = {"dtype": "fp32", "threads": 1, "kv_cache_bytes": size, **settings}
    config = EngineConfig(model, speculation=speculation, **settings)
    return Engine(config, now_s=now_s or itertools.count().__next__)


def adds(count: int, seed: int = 0, **rules: Any) -> list[Add]:
    """Greedy and warm ones over prompts that repeat themselves.

    A model of random weights does not; every other request is held to a few words by a bias.
    """
    chance = random.Random(seed)
    made = []
    for number in range(count):
        phrase = [chance.randrange(3, 300) for _ in range(chance.randrange(2, 12))]
        settings = {
            "max_tokens": 8 + number * 7 % 60,
            "ignore_eos": True,
            "temperature": 0.0 if number % 2 else 0.4,
            "seed": number,
            "repetition_penalty": 1.05 if number % 3 == 2 else 1.0,
            "logit_bias": dict.fromkeys(range(5, 9), 9.0) if number % 4 > 1 else {},
            **rules,
        }
        made.append(Add(f"r{number}", phrase * chance.randrange(1, 9), Sampling(**settings)))
    return made


def run(engine: Engine, requests: list[Add], *, all_at_once: bool = True) -> Said:
    said: Said = {}
    for add in requests:
        engine.add(add)
        while engine.busy and not all_at_once:
            note(engine, said)
    while engine.busy:
        note(engine, said)
    return said


def note(engine: Engine, said: Said) -> None:
    for output in engine.step().outputs:
        said.setdefault((output.id, output.index), []).append(output)


def tokens(said: Said) -> dict[tuple[str, int], tuple[list[int], str | None, str]]:
    """What a reader gets of each continuation, however it was cut into outputs."""
    return {
        name: ([t for o in outputs for t in o.tokens], outputs[-1].finish, outputs[-1].error)
        for name, outputs in said.items()
    }


def logprobs(said: Said) -> dict[tuple[str, int], list[Logprob]]:
    return {name: [p for o in outputs for p in o.logprobs] for name, outputs in said.items()}


def stats(engine: Engine) -> Stats:
    return engine.step().stats


@pytest.fixture(scope="module")
def alone(model):
    """Each request by itself, nothing guessed."""
    return tokens(run(engine_of(model, "off"), adds(24), all_at_once=False))


def test_a_lone_request_says_the_same_in_fewer_steps(model, alone):
    engine = engine_of(model)
    assert tokens(run(engine, adds(24), all_at_once=False)) == alone
    seen = stats(engine)
    assert seen.accepted_tokens > 100
    assert seen.draft_tokens >= seen.accepted_tokens
    assert seen.steps <= seen.generation_tokens - seen.accepted_tokens + 24


def test_a_batch_says_the_same(model, alone):
    engine = engine_of(model)
    assert tokens(run(engine, adds(24))) == alone
    assert stats(engine).accepted_tokens > 0


@pytest.mark.parametrize("settings", [{"dtype": "bf16"}, {"dtype": "int8"}])
def test_rounded_arithmetic_says_the_same_bit_for_bit(model, settings):
    plain, guessing = engine_of(model, "off", **settings), engine_of(model, **settings)
    expected = tokens(run(plain, adds(24)))
    # The portable path rounds a row by itself another way than among others.
    if plain.started().kernels.startswith("C++"):
        assert tokens(run(guessing, adds(24))) == expected
        assert stats(guessing).accepted_tokens > 0


@pytest.mark.parametrize("draft_tokens", [1, 3, 16])
def test_any_number_of_guesses_says_the_same(model, alone, draft_tokens):
    engine = engine_of(model, draft_tokens=draft_tokens)
    assert tokens(run(engine, adds(24))) == alone


def test_forced_preemption_says_the_same(model, alone):
    engine = engine_of(model, blocks=14)
    assert tokens(run(engine, adds(24))) == alone
    assert stats(engine).preemptions > 0
    assert stats(engine).accepted_tokens > 0


def test_few_seats_and_short_steps_say_the_same(model, alone):
    engine = engine_of(model, max_batched_tokens=12, max_seqs=3)
    assert tokens(run(engine, adds(24))) == alone
    assert stats(engine).accepted_tokens > 0


def test_prefix_hits_say_the_same_and_hold_nothing_that_was_only_guessed(model, alone):
    engine = engine_of(model)
    run(engine, adds(24), all_at_once=False)
    again = run(engine, [Add(f"again-{a.id}", a.prompt, a.sampling) for a in adds(24)])
    assert {(n.removeprefix("again-"), i): t for (n, i), t in tokens(again).items()} == alone
    # What was said before is now a prompt, so that its cached blocks are read.
    onwards = [
        Add(f"on-{a.id}", a.prompt + alone[a.id, 0][0], Sampling(max_tokens=9, temperature=0))
        for a in adds(24)
    ]
    assert tokens(run(engine, onwards)) == tokens(run(engine_of(model, "off"), onwards))
    assert stats(engine).prefix_hits > 0


def test_n_continuations_say_the_same(model):
    requests = [
        Add(a.id, a.prompt, a.sampling, n=3)
        for a in adds(6, temperature=0.7, max_tokens=40, repetition_penalty=1.0)
    ]
    engine = engine_of(model)
    assert tokens(run(engine, requests)) == tokens(run(engine_of(model, "off"), requests))
    assert stats(engine).accepted_tokens > 0


def test_logprobs_are_those_of_the_tokens(model):
    requests = adds(8, logprobs=3)
    plain, guessed = run(engine_of(model, "off"), requests), run(engine_of(model), requests)
    assert tokens(guessed) == tokens(plain)
    for name, expected in logprobs(plain).items():
        got = logprobs(guessed)[name]
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert [token for token, _ in one.top] == [token for token, _ in other.top]


def test_every_rule_says_the_same(model):
    drawn = {"top_p": 0.9, "top_k": 40, "min_p": 0.02}
    for more in (drawn, {"frequency_penalty": 0.2, "presence_penalty": 0.1}, {"min_tokens": 30}):
        requests = adds(10, seed=3, ignore_eos=False, **more)
        engine = engine_of(model)
        assert tokens(run(engine, requests)) == tokens(run(engine_of(model, "off"), requests))
        assert stats(engine).accepted_tokens > 0


def test_a_stop_token_among_guesses_that_held_is_the_end(model):
    """At every place of a text that goes round: its stop token counts from there on."""
    prompt, bias = [5, 6, 7, 8] * 5, {5: 9.0, 6: 9.0, 7: 9.0}
    plain, guessing = engine_of(model, "off"), engine_of(model)
    for least in range(1, 40):
        rules = Sampling(
            max_tokens=60, temperature=0.3, seed=1, logit_bias=bias, stop_token_ids=(6,),
            min_tokens=least, ignore_eos=True,
        )  # fmt: skip
        add = Add(f"s{least}", prompt, rules)
        assert tokens(run(guessing, [add])) == tokens(run(plain, [add]))
    assert stats(guessing).accepted_tokens > 100


def test_the_end_of_sequence_token_among_guesses_is_the_end(model):
    bias = {EOS_ID: 6.0, 5: 9.0, 6: 9.0}
    requests = adds(12, seed=5, temperature=0.8, ignore_eos=False, logit_bias=bias, max_tokens=60)
    expected = tokens(run(engine_of(model, "off"), requests))
    assert {finish for _, finish, _ in expected.values()} >= {"stop"}
    assert tokens(run(engine_of(model), requests)) == expected


def test_an_answer_ends_at_its_limit_whatever_is_guessed(model):
    engine, rules = engine_of(model), {"temperature": 0, "ignore_eos": True, "logit_bias": {9: 99}}
    for most in range(1, 24):
        said = run(engine, [Add("a", [9] * 9, Sampling(max_tokens=most, **rules))])
        assert tokens(said) == {("a", 0): ([9] * most, "length", "")}
    assert stats(engine).accepted_tokens > 100


def test_a_grammar_is_kept_token_by_token(model):
    grammar = '{"grammars": [{"lark_grammar": "start: /(ab|ba){40}/"}]}'
    requests = [
        Add(f"g{n}", [5, 6, 7], Sampling(max_tokens=70, temperature=t, seed=n, grammar=grammar))
        for n, t in enumerate((0.0, 0.8, 0.0, 1.2))
    ]
    engine = engine_of(model)
    expected = tokens(run(engine_of(model, "off"), requests))
    assert not any(error for _, _, error in expected.values())
    assert tokens(run(engine, requests)) == expected
    assert stats(engine).accepted_tokens > 0


def test_an_abort_in_the_middle_leaves_the_others_as_they_were(model, alone):
    engine, said = engine_of(model, blocks=60), {}
    for add in adds(24):
        engine.add(add)
    for step in range(400):
        if step % 5 == 0:
            engine.abort(Abort(f"r{step // 5 * 3}"))
        if engine.busy:
            note(engine, said)
    assert not engine.busy
    for name, (there, finish, _) in tokens(said).items():
        assert there == alone[name][0][: len(there)]
        assert finish is None or there == alone[name][0]
    assert stats(engine).kv_usage == 0.0


def test_steps_that_take_longer_with_each_row_are_left_alone(model):
    """A clock that charges for rows is not at hand: an hour for each step with guesses will do."""
    now, engine = [0.0], None

    def tick() -> float:
        now[0] += 1.0
        return now[0]

    engine = engine_of(model, now_s=tick)
    guesses = engine._speculator.guesses
    runs = []

    def slow(decodes):
        found = guesses(decodes)
        runs.append(bool(found))
        now[0] += 3600.0 * bool(found)
        return found

    engine._speculator.guesses = slow
    run(engine, adds(6, max_tokens=100), all_at_once=False)
    assert 3 <= sum(runs) < 20
    assert not any(runs[-50:])


def test_with_nothing_on_offer_nothing_is_counted(model):
    engine = engine_of(model, "off")
    run(engine, adds(3))
    seen = stats(engine)
    assert (seen.drafts, seen.draft_tokens, seen.accepted_tokens) == (0, 0, 0)
