"""Prompts become ids, or an error that names the field, within what the model can hold."""

import threading
from typing import Any

import pytest
from tests.serving.engine.byte_model import (
    CHAT_TEMPLATE,
    EOS,
    IM_END,
    IM_START,
    VOCAB,
    byte_tokenizer,
)

from ridgeline.serving.engine.asking import Bounds
from ridgeline.serving.engine.prompts import Prompts, longest_token_bytes
from ridgeline.serving.engine.template import ChatTemplate
from ridgeline.serving.engine.tokenizer import Tokenizer
from ridgeline.serving.openai import ApiError
from ridgeline.serving.openai.requests import (
    CalledFunction,
    ContentPart,
    Function,
    Message,
    Tool,
    ToolCall,
)

CONTEXT = 1000
NO_TOOLS = "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"


def prompts(*, adds_bos: bool = False, template: str = CHAT_TEMPLATE) -> Prompts:
    tokenizer = Tokenizer(byte_tokenizer(), bos_id=EOS, adds_bos=adds_bos)
    bounds = Bounds(CONTEXT, VOCAB, frozenset([EOS]))
    return Prompts(tokenizer, ChatTemplate(template), bounds, longest_token_bytes(tokenizer))


def test_a_conversation_is_what_the_template_makes_of_it() -> None:
    ids = prompts().chat([Message(role="user", content="hi")], None, None)
    assert ids == [IM_START, *b"user\nhi", IM_END, *b"\n", IM_START, *b"assistant\n"]


def test_developer_is_told_as_system_and_parts_as_one_text() -> None:
    parts = [ContentPart(type="text", text="a"), ContentPart(type="text", text="b")]
    ids = prompts().chat(
        [Message(role="developer", content=parts)], None, None, add_generation_prompt=False
    )
    assert ids == [IM_START, *b"system\na\nb", IM_END, *b"\n"]


def test_fields_that_were_not_given_are_not_told_to_the_template() -> None:
    template = "{{ tools | tojson }}{{ messages | tojson }}"
    message = Message(role="assistant", tool_calls=[ToolCall(function=CalledFunction(name="f"))])
    tool = Tool(type="function", function=Function(name="f"))
    ids = prompts(template=template).chat([message], [tool], None)
    text = prompts().tokenizer.decode(ids, skip_special=False)
    assert "description" not in text
    assert "reasoning_content" not in text
    assert '"arguments": {}' in text


@pytest.mark.parametrize("system", [None, "Be brief."])
def test_tools_are_told_in_the_system_message_where_the_template_knows_none(system) -> None:
    tool = Tool(type="function", function=Function(name="find_city", description="Finds it"))
    messages = [Message(role="user", content="hi")]
    if system is not None:
        messages.insert(0, Message(role="system", content=system))
    plain = prompts(template=NO_TOOLS)
    text = plain.tokenizer.decode(plain.chat(messages, [tool], None), skip_special=False)
    assert text.count("system:") == 1
    assert (system or "You can call") in text
    assert '"name":"find_city"' in text
    assert "Finds it" in text
    assert "You can call" not in plain.tokenizer.decode(plain.chat(messages, None, None))


def test_plain_text_begins_a_sequence_where_the_model_wants_that() -> None:
    assert prompts(adds_bos=True).completions("a") == [[EOS, ord("a")]]
    assert prompts(adds_bos=True).completions([[97]]) == [[97]]


@pytest.mark.parametrize("prompt", [[], [[1], 2], ["a", 1], [VOCAB], [[VOCAB]], ["a"] * 513])
def test_what_is_no_prompt_names_its_field(prompt: Any) -> None:
    with pytest.raises(ApiError) as caught:
        prompts().completions(prompt)
    assert (caught.value.status, caught.value.param) == (400, "prompt")


def test_a_text_that_cannot_fit_is_refused_without_being_tokenized() -> None:
    long = "x" * (CONTEXT * len("<|endoftext|>") + 1)
    with pytest.raises(ApiError, match="at least 1001 tokens"):
        prompts().text(long, param="prompt")


def test_other_threads_run_while_a_long_text_is_tokenized() -> None:
    """The event loop is such a thread: streams must not wait for somebody's long prompt."""
    tokenizer = prompts().tokenizer
    done = threading.Event()
    turns = 0

    def encode() -> None:
        tokenizer.encode("x" * 1_000_000)
        done.set()

    thread = threading.Thread(target=encode)
    thread.start()
    while not done.wait(0.005):
        turns += 1
    thread.join()
    assert turns >= 10
