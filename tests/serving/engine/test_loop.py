"""The whole engine without its processes: what it says must not depend on who else is there."""

import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tiny_models import write_tiny

from ridgeline.errors import ModelError
from ridgeline.serving.engine.cache import block_bytes
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.loop import Engine
from ridgeline.serving.engine.messages import Abort, Add, Output, Sampling
from ridgeline.serving.engine.model_files import open_model

BF16_TOP_2_GAP = 0.1
"""In log-probability: what rounding to eight bits may move two logits of this model apart."""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "llama"
    write_tiny(folder, "llama")
    return folder


def config_of(model: Path, *, blocks: int = 200, **settings) -> EngineConfig:
    """fp32 and one thread, with a cache of exactly so many blocks."""
    size = block_bytes(open_model(model).architecture, 16, "fp32") * blocks
    settings = {"dtype": "fp32", "threads": 1, "kv_cache_bytes": size, **settings}
    return EngineConfig(model, **settings)


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    chance = random.Random(seed)
    return [
        [chance.randrange(3, 300) for _ in range(chance.randrange(1, 90))] for _ in range(count)
    ]


def requests(count: int, seed: int = 0) -> list[Add]:
    """Greedy and warm ones, mixed lengths; no early end, so that lengths are known."""
    return [
        Add(
            f"r{number}",
            prompt,
            Sampling(
                max_tokens=5 + number % 40,
                ignore_eos=True,
                temperature=0.0 if number % 2 else 0.9,
                top_p=0.95,
                seed=number,
                repetition_penalty=1.1 if number % 3 == 0 else 1.0,
            ),
        )
        for number, prompt in enumerate(prompts(count, seed))
    ]


def run(engine: Engine, adds: list[Add], *, all_at_once: bool) -> dict[tuple[str, int], list[int]]:
    """What each continuation said."""
    said: dict[tuple[str, int], list[int]] = {}
    for add in adds:
        engine.add(add)
        while not all_at_once and engine.busy:
            note(engine.step().outputs, said)
    while engine.busy:
        note(engine.step().outputs, said)
    return said


def note(outputs: list[Output], said: dict[tuple[str, int], list[int]]) -> None:
    for output in outputs:
        assert output.finish != "error", output.error
        said.setdefault((output.id, output.index), []).extend(output.tokens)


@pytest.fixture(scope="module")
def alone(model) -> dict[tuple[str, int], list[int]]:
    """Each request by itself, nothing reused."""
    engine = Engine(config_of(model, prefix_caching=False))
    return run(engine, requests(24), all_at_once=False)


def test_a_batch_says_what_each_request_says_alone(model, alone):
    assert run(Engine(config_of(model)), requests(24), all_at_once=True) == alone


def test_prompts_in_chunks_say_the_same(model, alone):
    engine = Engine(config_of(model, max_batched_tokens=24, max_seqs=8))
    assert run(engine, requests(24), all_at_once=True) == alone


@pytest.mark.parametrize("settings", [{}, {"prefix_caching": False}, {"blocks": 14}])
def test_resumed_answers_go_on_as_if_nobody_had_interrupted_them(model, alone, settings):
    chance = random.Random(5)
    adds = []
    for add in requests(24):
        said = alone[add.id, 0]
        cut = chance.randrange(len(said))  # 0: not resumed at all
        adds.append(msgspec.structs.replace(add, resumed=said[:cut]))
    engine = Engine(config_of(model, **settings))
    rest = run(engine, adds, all_at_once=True)
    assert {(one.id, 0): one.resumed + rest[one.id, 0] for one in adds} == alone


def test_what_a_step_told_of_itself_stays_as_it_was_told(model):
    engine = Engine(config_of(model))
    for add in requests(3):
        engine.add(add)
    told = []
    while engine.busy:
        told.append(engine.step().stats)
    assert [stats.steps for stats in told] == list(range(1, len(told) + 1))
    assert told[0].generation_tokens < told[-1].generation_tokens


def test_forced_preemption_says_the_same(model, alone):
    engine = Engine(config_of(model, blocks=14))
    assert run(engine, requests(24), all_at_once=True) == alone
    assert engine.step().stats.preemptions > 0


def test_prefix_hits_say_the_same(model, alone):
    engine = Engine(config_of(model))
    run(engine, requests(24), all_at_once=False)
    again = [replace_id(add, f"again-{add.id}") for add in requests(24)]
    said = run(engine, again, all_at_once=True)
    assert {(of.removeprefix("again-"), n): t for (of, n), t in said.items()} == alone
    assert engine.step().stats.prefix_hits > 0


def replace_id(add: Add, name: str) -> Add:
    return Add(name, add.prompt, add.sampling, add.n, add.priority, add.salt)


def test_in_bf16_a_batch_differs_only_where_two_tokens_were_nearly_equal(model):
    """bf16 products may round differently for one row and for many (decisions/0007)."""
    adds = [
        Add(f"r{n}", prompt, Sampling(max_tokens=24, temperature=0, ignore_eos=True, logprobs=2))
        for n, prompt in enumerate(prompts(24))
    ]
    alone, batched = {}, {}
    for outputs, at_once in ((alone, False), (batched, True)):
        engine = Engine(config_of(model, dtype="bf16", max_batched_tokens=64))
        for add in adds:
            engine.add(add)
            while engine.busy and (not at_once or add is adds[-1]):
                for output in engine.step().outputs:
                    tops = [logprob.top for logprob in output.logprobs]
                    outputs.setdefault(output.id, []).extend(zip(output.tokens, tops, strict=True))
    for request, tokens in alone.items():
        for (token, top), (other, _) in zip(tokens, batched[request], strict=True):
            if token != other:
                assert top[0][1] - top[1][1] <= BF16_TOP_2_GAP, request
                break


def test_cached_tokens_are_told_with_the_first_output(model):
    engine = Engine(config_of(model))
    prompt = prompts(1)[0] * 5
    rules = Sampling(max_tokens=2, temperature=0, ignore_eos=True)
    run(engine, [Add("a", prompt, rules)], all_at_once=True)
    engine.add(Add("b", prompt, rules))
    first = engine.step().outputs[0]
    assert first.cached_tokens == (len(prompt) - 1) // 16 * 16


def test_another_salt_finds_nothing(model):
    engine = Engine(config_of(model))
    prompt = prompts(1)[0] * 5
    rules = Sampling(max_tokens=2, temperature=0, ignore_eos=True)
    run(engine, [Add("a", prompt, rules, salt=b"one")], all_at_once=True)
    engine.add(Add("b", prompt, rules, salt=b"two"))
    assert engine.step().outputs[0].cached_tokens == 0


def test_n_continuations_share_a_prompt_and_go_their_own_ways(model):
    prompt = prompts(1)[0] * 3
    rules = Sampling(max_tokens=20, temperature=1.5, seed=3, ignore_eos=True)
    engine = Engine(config_of(model))
    said = run(engine, [Add("a", prompt, rules, n=4)], all_at_once=True)
    assert [len(said["a", index]) for index in range(4)] == [20] * 4
    assert len({tuple(tokens) for tokens in said.values()}) == 4
    alone = run(Engine(config_of(model)), [Add("a", prompt, rules)], all_at_once=True)
    assert said["a", 0] == alone["a", 0]


def test_n_continuations_are_the_same_when_there_is_no_seat_for_them(model):
    prompt = prompts(1)[0] * 3
    rules = Sampling(max_tokens=20, temperature=1.5, seed=3, ignore_eos=True)
    add = Add("a", prompt, rules, n=4)
    many = run(Engine(config_of(model)), [add], all_at_once=True)
    few = run(Engine(config_of(model, max_seqs=2)), [add], all_at_once=True)
    assert many == few


def test_n_whose_first_continuation_ends_at_once_goes_on(model):
    prompt = prompts(1)[0]
    warm = Sampling(max_tokens=1, temperature=1.5, seed=3, ignore_eos=True)
    said = run(Engine(config_of(model)), [Add("a", prompt, warm, n=3)], all_at_once=True)
    assert [len(tokens) for tokens in said.values()] == [1, 1, 1]
    stops = Sampling(
        max_tokens=9, temperature=1.5, seed=3, ignore_eos=True, stop_token_ids=(said["a", 0][0],)
    )
    said = run(Engine(config_of(model)), [Add("a", prompt, stops, n=3)], all_at_once=True)
    assert len(said["a", 0]) == 1
    assert max(len(tokens) for tokens in said.values()) > 1


def test_a_token_outside_the_vocabulary_fails_alone(model):
    engine = Engine(config_of(model))
    bad = Sampling(max_tokens=3, logit_bias={10**6: 1.0})
    engine.add(Add("bad", [5], bad, n=2))
    engine.add(Add("good", [5], Sampling(max_tokens=1, temperature=0, ignore_eos=True)))
    finishes = {(o.id, o.index): o.finish for o in engine.step().outputs}
    assert finishes == {("bad", 0): "error", ("bad", 1): "error", ("good", 0): "length"}
    assert not engine.busy


def test_an_abort_before_the_prompt_is_computed_reaches_every_continuation(model):
    engine = Engine(config_of(model))
    engine.add(Add("a", [5, 6, 7], Sampling(max_tokens=3, ignore_eos=True), n=3))
    engine.abort(Abort("a", 1))
    said = {}
    while engine.busy:
        note(engine.step().outputs, said)
    assert sorted(said) == [("a", 0), ("a", 2)]
    engine.add(Add("b", [5, 6, 7], Sampling(max_tokens=3, ignore_eos=True), n=3))
    engine.abort(Abort("b"))
    assert not engine.busy


def test_an_abort_frees_every_block_at_once(model):
    engine = Engine(config_of(model, prefix_caching=False))
    for add in requests(12):
        engine.add(replace_n(add, 2))
    for _ in range(4):
        engine.step()
    engine.abort(Abort("r0", 0))
    for number in range(12):
        engine.abort(Abort(f"r{number}"))
    assert not engine.busy
    stats = engine.step().stats
    assert (stats.running, stats.waiting, stats.kv_usage) == (0, 0, 0.0)
    engine.abort(Abort("r0"))
    engine.abort(Abort("never was", 3))


def replace_n(add: Add, n: int) -> Add:
    return Add(add.id, add.prompt, add.sampling, n)


def test_a_priority_goes_first(model):
    engine = Engine(config_of(model, max_seqs=1))
    rules = Sampling(max_tokens=2, temperature=0, ignore_eos=True)
    engine.add(Add("late", [5], rules, priority=5))
    engine.add(Add("first", [6], rules, priority=-1))
    order = []
    while engine.busy:
        order += [output.id for output in engine.step().outputs if output.finish]
    assert order == ["first", "late"]


def test_a_stop_token_ends_with_stop_and_the_limit_with_length(model):
    engine = Engine(config_of(model))
    rules = Sampling(max_tokens=8, temperature=0, ignore_eos=True)
    tokens = run(engine, [Add("a", [7, 8, 9], rules)], all_at_once=True)["a", 0]
    stopping = Sampling(max_tokens=8, temperature=0, ignore_eos=True, stop_token_ids=(tokens[0],))
    engine.add(Add("b", [7, 8, 9], stopping))
    [last] = engine.step().outputs
    assert (last.tokens, last.finish) == ([tokens[0]], "stop")
    engine.add(Add("c", [7, 8, 9], Sampling(max_tokens=1, temperature=0, ignore_eos=True)))
    [last] = engine.step().outputs
    assert last.finish == "length"


def test_a_grammar_that_cannot_be_compiled_fails_alone(model):
    engine = Engine(config_of(model))
    engine.add(
        Add(
            "bad",
            [5],
            Sampling(max_tokens=3, grammar='{"grammars": [{"json_schema": {"type": "zzz"}}]}'),
        )
    )
    engine.add(Add("good", [5], Sampling(max_tokens=1, temperature=0, ignore_eos=True)))
    outputs = {output.id: output for output in engine.step().outputs}
    assert outputs["bad"].finish == "error"
    assert outputs["bad"].error
    assert outputs["good"].finish == "length"


def test_more_context_than_the_cache_holds_is_refused(model):
    with pytest.raises(ModelError, match="more than the 64"):
        Engine(config_of(model, blocks=4, max_model_len=100))
    with pytest.raises(ModelError, match="not even one block"):
        Engine(replace(config_of(model), kv_cache_bytes=10))


def test_a_cache_beyond_all_memory_is_refused_with_a_remedy(model):
    with pytest.raises(ModelError, match="more than this machine") as refused:
        Engine(replace(config_of(model), kv_cache_bytes=10**18))
    assert refused.value.remedy == "a smaller kv_cache"


def test_what_started_says_matches_the_settings(model):
    started = Engine(config_of(model, blocks=20)).started()
    assert (started.blocks, started.block_size, started.max_model_len) == (20, 16, 320)
    assert set(started.stages_s) >= {"weights", "warm-up"}
