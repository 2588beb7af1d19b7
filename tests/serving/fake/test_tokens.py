from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.fake.tokens import END, chat, decode, encode, stream_key, token_at

MOST = 2**31 - 1  # what a request's token ids may be


@given(st.text())
def test_encoding_is_reversible(text):
    ids = encode(text)
    assert decode(ids) == text
    assert all(0 < token <= MOST for token in ids)


def test_a_token_is_about_four_bytes():
    assert len(encode("a plain sentence of forty characters....")) == 10


@given(st.lists(st.integers(0, MOST)))
def test_any_ids_have_a_text(ids):
    assert isinstance(decode(ids), str)


def test_a_conversation_that_goes_on_has_the_earlier_one_as_its_prefix():
    key = stream_key([1], 0, 0)
    said = [token_at(key, position) for position in range(9)]
    first = chat([("user", "hello there")])
    second = chat([("user", "hello there"), ("assistant", decode(said)), ("user", "more")])
    assert second[: len(first) + len(said) + 1] == [*first, *said, END]


def test_what_is_said_depends_on_prompt_seed_choice_and_position():
    keys = {stream_key(prompt, seed, choice)
            for prompt in ([1], [2], [1, 2]) for seed in (0, 1) for choice in (0, 1)}  # fmt: skip
    assert len(keys) == 12
    key = stream_key([1], 0, 0)
    assert len({token_at(key, position) for position in range(100)}) > 90
