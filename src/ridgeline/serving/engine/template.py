"""Chat messages become the text a model was trained on, through the model's own Jinja template.

Law: a template is somebody else's program. It runs in Jinja's immutable sandbox (no attribute
that leads out, no `range` beyond 100,000), may not print without end, and whatever it raises is a
TemplateError, which the front answers with 400. Not guaranteed: that a template of nested loops
ends soon; templates come with the model, never with a request. Called by the HTTP front.

What templates are given follows transformers' `apply_chat_template`, as they are written for it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ridgeline.errors import ModelError

# Used for a model that has no template: ChatML, which most small chat models were trained on.
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LONGEST_OUTPUT_CHARS = 32_000_000
RESERVED = frozenset({"messages", "bos_token", "eos_token", "raise_exception", "strftime_now"})
# What evaluating an expression of somebody else's can raise.
EXPRESSION_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)

Message = Mapping[str, Any]


class TemplateError(ValueError):
    """The messages cannot be rendered: the template refuses them, or they are malformed."""


class ChatTemplate:
    """A compiled chat template.

    `source` None takes CHATML. Raises ModelError where the source is not a Jinja template.
    """

    def __init__(
        self,
        source: str | None,
        *,
        bos_token: str = "",
        eos_token: str = "",
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        environment = _environment(now)
        try:
            parsed = environment.parse(CHATML if source is None else source)
            self._template = environment.from_string(parsed)
        except jinja2.TemplateError as error:
            raise ModelError(
                f"the chat template cannot be compiled: {error}",
                remedy="put a working chat_template.jinja into the model's folder",
            ) from error
        self._special = {"bos_token": bos_token, "eos_token": eos_token}
        #: Whether it tells the model of tools; else somebody else has to.
        self.takes_tools = any(name.name == "tools" for name in parsed.find_all(nodes.Name))
        self._takes_parts = _loops_over_content(parsed)
        self._asks_for_none = any(test.name == "none" for test in parsed.find_all(nodes.Test))

    def render(
        self,
        messages: Sequence[Message],
        /,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **extra: Any,
    ) -> str:
        """The prompt's text.

        `messages` and `tools` are OpenAI's. Content given as parts is joined by newlines unless
        the template loops over parts; arguments of tool calls are parsed, as templates expect;
        a missing content is "" unless the template asks whether it is none. `extra` are further
        names for the template (e.g. `enable_thinking`). Raises TemplateError.
        """
        taken = RESERVED & extra.keys()
        if taken:
            raise TemplateError(f"a template argument may not be called {min(taken)!r}")
        prepared = [self._prepared(message) for message in messages]
        try:
            return self._bounded(
                **self._special,
                **extra,
                messages=prepared,
                tools=tools,
                add_generation_prompt=add_generation_prompt,
            )
        except EXPRESSION_ERRORS as error:
            if isinstance(error, TemplateError):
                raise
            raise TemplateError(f"the chat template says: {error}") from error

    def _bounded(self, **names: Any) -> str:
        pieces = []
        left_chars = LONGEST_OUTPUT_CHARS
        for piece in self._template.generate(**names):
            left_chars -= len(piece)
            if left_chars < 0:
                raise TemplateError(f"the prompt is longer than {LONGEST_OUTPUT_CHARS} characters")
            pieces.append(piece)
        return "".join(pieces)

    def _prepared(self, message: Message) -> dict[str, Any]:
        prepared = dict(message)
        content = prepared.get("content")
        if content is None and not self._asks_for_none:
            prepared["content"] = ""
        elif isinstance(content, list):
            texts = [_part_text(part) for part in content]
            prepared["content"] = content if self._takes_parts else "\n".join(texts)
        calls = prepared.get("tool_calls")
        if isinstance(calls, list):
            prepared["tool_calls"] = [_with_parsed_arguments(call) for call in calls]
        return prepared


def _environment(now: Callable[[], datetime]) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )

    def strftime_now(form: str) -> str:
        return now().strftime(form)

    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


class _GenerationTag(Extension):
    """`{% generation %}` marks what training learns from; for a prompt it means nothing."""

    tags = {"generation"}  # noqa: RUF012  (Jinja's interface)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is; Jinja's own filter would escape <, > and & for web pages."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _part_text(part: Any) -> str:
    """The text of a content part; only text can be given to these models."""
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise TemplateError(f"content parts must be of type text, not {kind!r}")


def _with_parsed_arguments(call: Any) -> Any:
    """OpenAI writes a call's arguments as a JSON text, templates want the object."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError as error:
        raise TemplateError(
            f"arguments of the tool call {function.get('name')!r} are not JSON: {error}"
        ) from error
    return {**call, "function": {**function, "arguments": arguments}}


def _loops_over_content(template: nodes.Template) -> bool:
    """Whether a loop runs over a message's content, or over a name that was set to it."""
    aliases = {
        assign.target.name
        for assign in template.find_all(nodes.Assign)
        if isinstance(assign.target, nodes.Name) and _is_content(assign.node)
    }
    return any(
        _is_content(loop.iter) or (isinstance(loop.iter, nodes.Name) and loop.iter.name in aliases)
        for loop in template.find_all(nodes.For)
    )


def _is_content(node: nodes.Node) -> bool:
    """`message.content` or `message['content']`."""
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    return (
        isinstance(node, nodes.Getitem)
        and isinstance(node.arg, nodes.Const)
        and node.arg.value == "content"
    )
