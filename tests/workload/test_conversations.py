"""ShareGPT's conversations."""

import pytest

from ridgeline.workload.conversations import conversation


def said(*turns: str, **more):
    who = ("human", "gpt")
    told = [{"from": who[n % 2], "value": text} for n, text in enumerate(turns)]
    return {"id": "c1", "conversations": told, **more}


def test_each_answer_is_a_request_and_its_prompt_is_all_that_was_said():
    first, second = conversation(said("a" * 100, "b" * 40, "c" * 60, "d" * 8))
    assert (first.prompt_tokens, first.output_tokens) == (25, 10)
    assert (second.prompt_tokens, second.output_tokens) == (50, 2)
    assert first.session == second.session == "c1"
    assert second.blocks[: len(first.blocks)] == first.blocks
    assert (len(first.blocks), len(second.blocks)) == (1, 3)


def test_equal_beginnings_have_equal_blocks_and_others_have_not():
    (one,) = conversation(said("x" * 64 + "y" * 64, "ok"))
    (other,) = conversation(said("x" * 64 + "z" * 64, "ok"))
    assert one.blocks[0] == other.blocks[0]
    assert one.blocks[1] != other.blocks[1]
    assert len({*one.blocks, *other.blocks}) == 3


def test_roles_of_other_dialects_and_an_answer_to_nothing():
    told = {"conversations": [
        {"role": "assistant", "content": "I begin"}, {"role": "user", "content": "hello there"},
        {"role": "assistant", "content": ""},
    ]}  # fmt: skip
    (only,) = conversation(told)
    assert (only.prompt_tokens, only.output_tokens, only.session) == (4, 0, "")


@pytest.mark.parametrize("turns", ["ab", 7, None, [7], [{"from": "gpt"}], [{"value": "x"}], [[]]])
def test_what_is_no_conversation_is_refused(turns):
    with pytest.raises((ValueError, TypeError, AttributeError)):
        list(conversation({"conversations": turns}))
