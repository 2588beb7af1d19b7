"""Prompts as blocks: what continues shares them, and nobody shares them with another tenant."""

import json
from itertools import takewhile

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.gateway.prompt_blocks import (
    BLOCK_BYTES,
    MOST_BLOCKS,
    PromptBlocks,
    prompt_blocks,
)

LONG = "All happy families are alike; each unhappy family is unhappy in its own way. " * 8

messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant"]), "content": st.text(max_size=300)}
    ),
    min_size=1,
    max_size=6,
)


def blocks(model: str = "m", tenant: str = "t", **body: object) -> PromptBlocks:
    return prompt_blocks(json.dumps({"model": model, **body}).encode(), model, tenant)


def shared(one: PromptBlocks, other: PromptBlocks) -> int:
    pairs = zip(one.hashes, other.hashes, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def said(content: object, role: str = "user") -> dict[str, object]:
    return {"role": role, "content": content}


@given(messages, messages)
def test_a_longer_conversation_begins_with_all_blocks_of_the_shorter(first, more) -> None:
    short, long = blocks(messages=first), blocks(messages=first + more)
    assert long.hashes[: len(short.hashes)] == short.hashes
    assert long.text_bytes > short.text_bytes


@given(messages)
def test_other_tenants_models_and_salts_share_nothing(talk) -> None:
    mine = set(blocks(messages=talk).hashes)
    assert not mine & set(blocks(messages=talk, tenant="other").hashes)
    assert not mine & set(blocks(messages=talk, model="other").hashes)
    assert not mine & set(blocks(messages=talk, cache_salt="s").hashes)
    assert mine == set(blocks(messages=talk).hashes)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"prompt": LONG}, {"prompt": LONG + "More."}),
        ({"prompt": list(range(300))}, {"prompt": [*range(300), 7, 8]}),
        ({"prompt": [LONG, LONG]}, {"prompt": [LONG, LONG, "third"]}),
        ({"input": LONG}, {"input": LONG + "More."}),
        ({"input": [said(LONG)]}, {"input": [said(LONG), said("More.")]}),
    ],
    ids=["text", "token ids", "list of texts", "responses text", "responses items"],
)
def test_prompts_of_every_form_extend(short, long) -> None:
    assert shared(blocks(**short), blocks(**long)) == len(blocks(**short).hashes) > 8


def test_text_ends_the_shared_blocks_where_it_differs() -> None:
    one = blocks(messages=[said(LONG + "x" + LONG)])
    other = blocks(messages=[said(LONG + "y" + LONG)])
    assert shared(one, other) == pytest.approx(len(LONG) / BLOCK_BYTES, abs=2)


@pytest.mark.parametrize(
    "changed",
    [
        {"tools": [{"type": "function", "function": {"name": "look"}}]},
        {"functions": [{"name": "look"}]},
        {"system": "Be short."},
        {"instructions": "Be short."},
        {"chat_template_kwargs": {"thinking": False}},
        {"documents": [{"text": "a"}]},
    ],
    ids=lambda body: next(iter(body)),
)
def test_what_is_rendered_before_the_messages_changes_every_block(changed) -> None:
    assert not shared(blocks(messages=[said(LONG)]), blocks(messages=[said(LONG)], **changed))


def test_images_and_unknown_parts_belong_to_the_prompt() -> None:
    def seeing(url: str) -> PromptBlocks:
        parts = [{"type": "text", "text": LONG}, {"type": "image_url", "image_url": {"url": url}}]
        return blocks(messages=[said([*parts, {"type": "new", "new": LONG}])])

    one, other = seeing("data:image/png;base64,AAAA"), seeing("data:image/png;base64,BBBB")
    assert 0 < shared(one, other) < len(one.hashes)


def test_roles_belong_to_the_prompt() -> None:
    assert not shared(blocks(messages=[said(LONG)]), blocks(messages=[said(LONG, "system")]))


def test_what_only_says_how_to_answer_does_not() -> None:
    plain = blocks(messages=[said(LONG)])
    assert plain == blocks(messages=[said(LONG)], temperature=0.5, stream=True, max_tokens=7)


def test_pretty_printed_json_extends_too() -> None:
    def pretty(*talk: dict[str, object]) -> PromptBlocks:
        body = json.dumps({"model": "m", "messages": talk}, indent=2).encode()
        return prompt_blocks(body, "m", "t")

    short = pretty(said(LONG))
    assert shared(short, pretty(said(LONG), said("Yes.", "assistant"))) == len(short.hashes)


def test_a_huge_prompt_is_looked_at_up_to_a_bound_and_its_length_is_known() -> None:
    huge = blocks(prompt="x" * 1_000_000)
    assert len(huge.hashes) == MOST_BLOCKS
    assert huge.length == pytest.approx(1_000_000 / BLOCK_BYTES, rel=0.01)


def test_a_body_without_a_prompt_has_no_blocks() -> None:
    nothing = blocks()
    assert nothing.hashes == ()
    assert nothing.length == 1.0


@given(
    st.dictionaries(
        st.sampled_from(["messages", "prompt", "tools", "input"]),
        st.none() | st.booleans() | st.integers() | st.text(),
    )
)
def test_odd_values_are_the_replicas_business(body) -> None:
    assert blocks(**body).text_bytes >= 0


def test_it_needs_json() -> None:
    with pytest.raises(msgspec.DecodeError):
        prompt_blocks(b"{", "m", "t")
