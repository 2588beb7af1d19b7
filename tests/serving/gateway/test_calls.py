"""What the gateway reads and changes of a body; every other byte stays."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.gateway.calls import peek, with_model, with_usage

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
plain = st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | text
values = plain | st.lists(plain, max_size=3) | st.dictionaries(text, plain, max_size=3)
others = st.dictionaries(
    text.filter(lambda key: key not in ("model", "stream", "stream_options")), values, max_size=4
)


@given(others, st.none() | st.fixed_dictionaries({}, optional={"include_usage": st.booleans()}))
def test_asking_for_usage_changes_one_option_and_nothing_else(fields, options) -> None:
    sent = {**fields, "model": "m", "stream": True, "stream_options": options}
    now = json.loads(with_usage(json.dumps(sent).encode()))
    assert now == {**sent, "stream_options": {**(options or {}), "include_usage": True}}


@given(others)
def test_another_name_for_the_model_changes_nothing_else(fields) -> None:
    sent = {**fields, "model": "chat"}
    now = json.loads(with_model(json.dumps(sent).encode(), 'org/"odd" näme'))
    assert now == {**sent, "model": 'org/"odd" näme'}


def test_numbers_keep_their_spelling() -> None:
    body = b'{"model":"m","temperature":1.0e0,"seed":123456789012345678901234567890}'
    assert b"1.0e0" in with_usage(body)
    assert b"123456789012345678901234567890" in with_usage(body)


@pytest.mark.parametrize(
    ("options", "wants"),
    [
        (b"null", False),
        (b"{}", False),
        (b'{"include_usage": false}', False),
        (b'{"include_usage": true}', True),
        (b"7", False),
    ],
)
def test_who_asked_for_usage(options, wants) -> None:
    call = peek(b'{"model": "m", "stream": true, "stream_options": ' + options + b"}")
    assert call.wants_usage is wants


def test_options_that_are_no_object_are_left_for_the_replica_to_refuse() -> None:
    body = b'{"model": "m", "stream_options": 7}'
    assert with_usage(body) == body


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ('"a"', 1),
        ("[]", 1),
        ("[1,2,3]", 1),
        ('["a","b"]', 2),
        ("[[1,2],[3]]", 2),
        ('[ "a, [b]", [1] ]', 2),
        ("null", 1),
    ],
)
def test_answers_are_counted_over_all_prompts(prompt, prompts) -> None:
    call = peek(b'{"model":"m","n":3,"stream":true,"prompt":%s}' % prompt.encode())
    assert call.choices == 3 * prompts
    alone = peek(b'{"model":"m","stream":true,"prompt":%s}' % prompt.encode())
    assert alone.can_go_on == (prompts == 1)


@pytest.mark.parametrize(
    ("path", "fields", "most"),
    [
        ("/v1/completions", '"max_tokens":900,"max_completion_tokens":1', 900),
        ("/v1/completions", '"max_completion_tokens":1', None),
        ("/v1/chat/completions", '"max_tokens":900,"max_completion_tokens":0', 900),
        ("/v1/chat/completions", '"max_completion_tokens":5', 5),
        ("/v1/chat/completions", '"temperature":0', None),
    ],
)
def test_the_most_is_what_a_replica_would_take_for_it(path, fields, most) -> None:
    assert peek(b'{"model":"m",%s}' % fields.encode()).most_tokens(path) == most
