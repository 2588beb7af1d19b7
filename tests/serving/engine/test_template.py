from datetime import datetime
from typing import Any

import pytest
import tokenizers
from tests.serving.engine.default_model import SMOLLM2, needs_smollm2
from tests.serving.engine.tiny_models import tiny_tokenizer
from transformers import PreTrainedTokenizerFast

from ridgeline.errors import ModelError
from ridgeline.serving.engine.model_files import open_model
from ridgeline.serving.engine.template import ChatTemplate, TemplateError

USER = {"role": "user", "content": "What is <b> & ½?"}
TALK = [
    {"role": "system", "content": "Be brief."},
    USER,
    {"role": "assistant", "content": "A tag."},
    {"role": "user", "content": "And 2024?\n"},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Finds <things> & 'more'",
            "parameters": {"type": "object", "properties": {"ü": {"type": "string"}}},
        },
    }
]
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "1",
            "type": "function",
            "function": {"name": "look_up", "arguments": '{"ü": "x", "n": [1, 2]}'},
        }
    ],
}
# In the manner of a tool-using model's template: blocks on own lines, JSON, loop controls.
WITH_TOOLS = """{{- bos_token }}
{%- if tools %}
    {%- for tool in tools %}
{{ tool | tojson(indent=2) }}
    {%- endfor %}
{%- endif %}
{% for message in messages %}
    {% if message.role == 'skip' %}{% continue %}{% endif %}
[{{ message.role }}] {{ message.content }}
    {% for call in message.tool_calls or [] %}
{{ call.function.name }}({{ call.function.arguments | tojson }})
    {% endfor %}
{% endfor %}
{% generation %}{% if add_generation_prompt %}>{% endif %}{% endgeneration %}{{ eos_token }}
"""


def by_transformers(source: str, messages: list[Any], **options: Any) -> str:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(tiny_tokenizer().to_str()),
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        chat_template=source,
    )
    return str(tokenizer.apply_chat_template(messages, tokenize=False, **options))


def ours(source: str | None) -> ChatTemplate:
    return ChatTemplate(source, bos_token="<|im_start|>", eos_token="<|im_end|>")


@needs_smollm2
@pytest.mark.parametrize("messages", [[USER], TALK])
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_smollm2s_prompts_are_those_of_transformers(
    messages: list[Any], add_generation_prompt: bool
) -> None:
    assert SMOLLM2 is not None
    source = open_model(SMOLLM2).chat_template
    assert source is not None
    rendered = ours(source).render(messages, add_generation_prompt=add_generation_prompt)
    assert rendered == by_transformers(
        source, messages, add_generation_prompt=add_generation_prompt
    )
    assert "What is <b> & ½?" in rendered


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_blocks_json_and_loop_controls_are_those_of_transformers(tools: Any) -> None:
    messages = [USER, {"role": "skip", "content": "?"}, {"role": "tool", "content": "{}"}]
    rendered = ours(WITH_TOOLS).render(messages, tools)
    assert rendered == by_transformers(
        WITH_TOOLS, messages, tools=tools, add_generation_prompt=True
    )
    assert ("Finds <things> & 'more'" in rendered) == (tools is not None)


def test_a_model_without_template_gets_chatml() -> None:
    assert ours(None).render(TALK[:2]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWhat is <b> & ½?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_arguments_of_tool_calls_are_given_as_objects() -> None:
    rendered = ours(WITH_TOOLS).render([USER, CALL])
    assert 'look_up({"ü": "x", "n": [1, 2]})' in rendered
    assert CALL["tool_calls"][0]["function"]["arguments"].startswith("{")  # the caller's is kept


def test_arguments_that_are_not_json_are_refused() -> None:
    call = {"function": {"name": "f", "arguments": "{"}}
    with pytest.raises(TemplateError, match="'f' are not JSON"):
        ours(WITH_TOOLS).render([{"role": "assistant", "tool_calls": [call]}])


def test_text_parts_are_joined_unless_the_template_takes_them() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    message = {"role": "user", "content": parts}
    assert "user\none\ntwo<|im_end|>" in ours(None).render([message])
    for loop in (
        "{% for part in message.content %}({{ part.text }}){% endfor %}",
        "{% for part in message['content'] %}({{ part['text'] }}){% endfor %}",
        "{% set parts = message.content %}{% for p in parts %}({{ p.text }}){% endfor %}",
    ):
        source = "{% for message in messages %}" + loop + "{% endfor %}"
        assert ours(source).render([message]) == "(one)(two)"


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {}}, "text", 3, {"text": 1}])
def test_parts_that_are_not_text_are_refused(part: Any) -> None:
    with pytest.raises(TemplateError, match="must be of type text"):
        ours(None).render([{"role": "user", "content": [part]}])


def test_missing_content_is_empty_unless_the_template_asks() -> None:
    message = {"role": "assistant", "content": None}
    each = "{% for m in messages %}%s{% endfor %}"
    assert ours(each.replace("%s", "[{{ m.content }}]")).render([message]) == "[]"
    asks = each.replace("%s", "{{ 'none' if m.content is none else m.content }}")
    assert ours(asks).render([message]) == "none"


def test_further_arguments_reach_the_template_and_its_own_names_are_kept() -> None:
    template = ours("{{ 'think' if enable_thinking else 'answer' }}")
    assert template.render([], enable_thinking=True) == "think"
    assert template.render([]) == "answer"
    for name in ("bos_token", "raise_exception"):
        with pytest.raises(TemplateError, match=name):
            template.render([], **{name: "x"})
    with pytest.raises(TemplateError, match="messages"):
        template.render([], messages=[])


def test_the_clock_is_given() -> None:
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", now=lambda: datetime(2024, 7, 26))
    assert template.render([]) == "26 Jul 2024"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ raise_exception('roles must alternate') }}", "^roles must alternate$"),
        ("{{ missing.attribute }}", "missing"),
        ("{{ messages[0].content + 1 }}", "the chat template says"),
        ("{{ messages[7].role.name }}", "the chat template says"),
        ("{{ 1 // 0 }}", "the chat template says"),
        ("{{ {}.x.y }}", "the chat template says"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_whatever_a_template_raises_is_a_template_error(source: str, says: str) -> None:
    with pytest.raises(TemplateError, match=says):
        ours(source).render([USER])
    assert issubclass(TemplateError, ValueError)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__closure__ }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ ''|attr('__class__')|attr('__mro__')|string + 'x' }}{{ (''|attr('__class__')).x }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{% for i in range(1000000000) %}{% endfor %}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_a_hostile_template_does_not_get_out(source: str) -> None:
    try:
        rendered = ours(source).render([dict(USER)])
    except TemplateError:
        return
    assert "class" not in rendered
    assert "root:" not in rendered


def test_output_without_end_is_cut_off() -> None:
    source = "{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}"
    with pytest.raises(TemplateError, match="longer than"):
        ours(source).render([])


def test_a_template_that_is_none_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="cannot be compiled") as caught:
        ours("{% for %}")
    assert "chat_template.jinja" in caught.value.remedy
