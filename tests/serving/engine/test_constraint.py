"""Masks that leave only what the grammar allows, and hostile grammars that harm nobody else."""

import functools
import json
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.serving.engine.default_model import SMOLLM2, needs_smollm2
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ridgeline.serving.engine.constraint import Constraints, Matcher
from ridgeline.serving.engine.messages import Sampling
from ridgeline.serving.engine.model_files import open_model
from ridgeline.serving.engine.sampler import Sampler

EOS = 0
PADDED = 16  # logits wider than the tokenizer's vocabulary, as many models have them
TEXTS = ['{"name": "Ann", "age": 31, "tags": ["a", "b"]}', "the quick brown fox", "naïve ☃ 🎉"]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_pattern": "[ \\n]{1,3}"},
}


@functools.cache
def tokenizer() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXTS * 3,
        trainers.BpeTrainer(
            vocab_size=320,
            special_tokens=["<end>", "<other end>"],
            initial_alphabet=alphabet,
            show_progress=False,
        ),
    )
    return made


@functools.cache
def constraints() -> Constraints:
    made = tokenizer()
    return Constraints(made.to_str(), made.get_vocab_size() + PADDED, (EOS, 1))


def schema(value: Any) -> str:
    return json.dumps({"grammars": [{"json_schema": value}]})


def walk(matcher: Matcher, random: np.random.Generator, steps: int = 400) -> list[int]:
    """Tokens at random among those allowed, preferring an end, until one comes or steps do."""
    tokens: list[int] = []
    while len(tokens) < steps:
        allowed = np.flatnonzero(matcher.allowed())
        token = EOS if EOS in allowed else int(random.choice(allowed))
        matcher.accept(token)
        if token == EOS:
            break
        tokens.append(token)
    return tokens


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32))
def test_any_walk_that_ends_is_json_of_the_schema(seed: int) -> None:
    tokens = walk(constraints().matcher(schema(PERSON)), np.random.default_rng(seed), 4000)
    person = json.loads(tokenizer().decode(tokens))
    assert set(person) == {"name", "age"}
    assert isinstance(person["name"], str)
    assert isinstance(person["age"], int | float)
    assert person["age"] == int(person["age"])


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32))
def test_an_end_is_allowed_exactly_when_the_json_is_complete(seed: int) -> None:
    random = np.random.default_rng(seed)
    matcher = constraints().matcher(schema({"type": ["object", "integer"]}))
    text: list[int] = []
    for _ in range(60):
        allowed = matcher.allowed()
        assert allowed[EOS] == allowed[1] == _is_json(tokenizer().decode(text))
        following = np.flatnonzero(allowed[2:]) + 2
        assert matcher.finished == (len(following) == 0)
        if matcher.finished:
            break
        text.append(int(random.choice(following)))
        matcher.accept(text[-1])


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_when_nothing_else_may_follow_only_ends_are_allowed() -> None:
    matcher = constraints().matcher(schema(PERSON))
    for token in tokenizer().encode('{"name": "x", "age": 3}').ids:
        assert not matcher.finished
        matcher.accept(token)
    assert matcher.finished
    assert np.flatnonzero(matcher.allowed()).tolist() == [EOS, 1]
    matcher.accept(1)
    assert matcher.finished


def test_logits_beyond_the_vocabulary_are_never_allowed() -> None:
    allowed = constraints().matcher(schema({})).allowed()
    assert len(allowed) == tokenizer().get_vocab_size() + PADDED
    assert allowed.any()
    assert not allowed[-PADDED:].any()


def test_a_token_that_does_not_fit_is_an_error_from_then_on() -> None:
    matcher = constraints().matcher(schema(PERSON))
    (token,) = tokenizer().encode("x").ids
    with pytest.raises(ValueError, match="grammar failed"):
        matcher.accept(token)
    with pytest.raises(ValueError, match="grammar failed"):
        matcher.allowed()
    assert not matcher.finished


def test_matchers_of_one_grammar_move_on_by_themselves() -> None:
    first = constraints().matcher(schema(PERSON))
    (brace,) = tokenizer().encode("{").ids
    first.accept(brace)
    second = constraints().matcher(schema(PERSON))
    assert second.allowed()[brace]
    assert not first.allowed()[brace]


def test_many_grammars_are_not_all_remembered() -> None:
    made = Constraints(tokenizer().to_str(), tokenizer().get_vocab_size(), (EOS,))
    for length in range(100):
        made.matcher(schema({"type": "string", "maxLength": length}))
    assert len(made._compiled) == 32


@pytest.mark.parametrize(
    "grammar",
    [
        "",
        "{}",
        "not a grammar",
        schema({"type": "zzz"}),
        schema(False),
        schema({"type": "string", "pattern": "(?=look)ahead"}),
        schema({"$ref": "http://127.0.0.1:1/elsewhere.json"}),
        schema({"$ref": "file:///etc/hostname"}),
    ],
)
def test_what_cannot_be_compiled_says_why(grammar: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be compiled: \S+") as caught:
        constraints().matcher(grammar)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def nested(depth: int) -> Any:
    value: Any = {"type": "string"}
    for _ in range(depth):
        value = {"type": "object", "properties": {"a": value}, "required": ["a"]}
    return value


def doubling(kind: str, depth: int) -> Any:
    """Each definition mentions the next one twice: 2^depth paths in a small schema."""
    defs: dict[str, Any] = {
        f"d{at}": {kind: [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(depth)
    }
    return {"$defs": {**defs, f"d{depth}": {"type": "string"}}, "$ref": "#/$defs/d0"}


HOSTILE = {
    "deep": nested(60),
    "deeper than the parser": nested(400),
    "endless": {"$ref": "#"},
    "circular": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "$ref": "#/$defs/a",
    },
    "recursive": {"properties": {"again": {"$ref": "#"}}, "type": "object"},
    "a billion items": {"type": "array", "items": {"type": "null"}, "minItems": 10**9},
    "a billion characters": {"type": "string", "minLength": 10**9},
    "a million properties": {"type": "object", "minProperties": 10**6},
    "repeated repeats": {"type": "string", "pattern": "((a{1000}){1000}){1000}"},
    "exponential automaton": {"type": "string", "pattern": "^.*a.{60}$"},
    "intersections": {
        "allOf": [{"type": "string", "pattern": f".*{letter}.{{30}}"} for letter in "abcdefghij"]
    },
    "doubling anyOf": doubling("anyOf", 25),
    "doubling allOf": doubling("allOf", 25),
    "product of choices": {
        "allOf": [
            {
                "anyOf": [
                    {"required": [f"k{at}"], "properties": {f"k{at}": {"const": value}}}
                    for value in range(4)
                ]
            }
            for at in range(8)
        ]
    },
    "many properties": {"properties": {f"p{at}": {"type": "string"} for at in range(1500)}},
    "a long pattern": {"type": "string", "pattern": "(a|bc?){9}" * 5_000},
    "parentheses": {"type": "string", "pattern": "(" * 5000 + ")" * 5000},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_refused_or_served_in_bounded_time(name: str) -> None:
    began_s = time.process_time()
    try:
        walk(constraints().matcher(schema(HOSTILE[name])), np.random.default_rng(0), 200)
    except ValueError as error:
        assert str(error).startswith("The grammar")  # noqa: PT017 - either outcome is right
    assert time.process_time() - began_s < 5


def test_a_sampler_holds_a_babbling_model_to_the_schema() -> None:
    vocab = tokenizer().get_vocab_size() + PADDED
    choice = {"type": "object", "properties": {"a": {"enum": [1, 22]}, "b": {"type": "null"}}}
    grammar = schema({**choice, "required": ["a", "b"], "additionalProperties": False})
    made = Sampler(vocab, (EOS, 1))
    for seed in range(10):
        random = np.random.default_rng(seed)
        rules = Sampling(400, temperature=2.0, seed=seed, logit_bias={EOS: 5.0})
        state = made.open(rules, [], 0, constraints().matcher(grammar))
        tokens: list[int] = []
        while not state.complete:
            logits = random.standard_normal((1, vocab)).astype(np.float32)
            tokens.append(made.sample(logits, [state])[0].token)
        assert json.loads(tokenizer().decode(tokens)) in ({"a": 1, "b": None}, {"a": 22, "b": None})


@needs_smollm2
def test_the_default_models_vocabulary_writes_json() -> None:
    assert SMOLLM2 is not None
    files = open_model(SMOLLM2)
    eos_ids, vocab = files.architecture.eos_ids, files.architecture.vocab
    matcher = Constraints(files.tokenizer.to_json(), vocab, eos_ids).matcher(schema(PERSON))
    text = '{"name": "Zoë 🎉", "age": 2024}'
    for token in files.tokenizer.encode(text):
        assert matcher.allowed()[token]
        matcher.accept(token)
    assert matcher.finished
    assert np.flatnonzero(matcher.allowed()).tolist() == sorted(eos_ids)
