"""From a request's `prompt` or `messages` to token ids, within what this model can hold.

Used by `endpoints`, for large bodies in a thread: nothing here touches the event loop.
"""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from ridgeline.serving.engine.asking import MOST_CHOICES, Bounds
from ridgeline.serving.engine.template import ChatTemplate, TemplateError
from ridgeline.serving.engine.tokenizer import Tokenizer
from ridgeline.serving.openai import ApiError, context_too_long
from ridgeline.serving.openai.requests import ContentPart, Message, Tool


def longest_token_bytes(tokenizer: Tokenizer) -> int:
    """The length of the longest token, special ones included. Reads the whole vocabulary."""
    return max(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size))


class Prompts:
    """Reads prompts for one model; `longest_bytes` is the length of its longest token."""

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate, bounds: Bounds, longest_bytes: int
    ) -> None:
        self.tokenizer = tokenizer
        self._template = template
        self._bounds = bounds
        self._longest_token_bytes = longest_bytes

    def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] | None,
        extra: dict[str, Any] | None,
        *,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """The ids of a conversation. The template writes the special tokens, bos included."""
        extra = extra or {}
        if reserved := {"messages", "tools", "add_generation_prompt"} & extra.keys():
            name = min(reserved)
            raise ApiError(400, f"{name} has a field of its own.", param="chat_template_kwargs")
        plain = [_plain(message, number) for number, message in enumerate(messages)]
        if tools and not self._template.takes_tools:
            plain = _with_tools(plain, tools)
        try:
            text = self._template.render(
                plain,
                tools=_builtins(tools),
                add_generation_prompt=add_generation_prompt,
                **extra,
            )
        except TemplateError as error:
            raise ApiError(400, _sentence(str(error)), param="messages") from None
        return self.text(text, param="messages", add_bos=False)

    def completions(self, prompt: str | list[Any]) -> list[list[int]]:
        """The ids of each prompt of a plain completion."""
        prompts: list[Any] = [prompt] if isinstance(prompt, str) else prompt
        kinds = {type(one) for one in prompts}
        if kinds == {int}:
            prompts, kinds = [prompts], {list}
        if len(kinds) != 1:
            raise ApiError(
                400,
                "prompt has to be a text, a list of texts, a list of token ids, or a list of "
                "lists of token ids, and not empty.",
                param="prompt",
            )
        if len(prompts) > MOST_CHOICES:
            raise ApiError(400, f"prompt has more than {MOST_CHOICES} prompts.", param="prompt")
        if kinds == {str}:
            return [self.text(one, param="prompt") for one in prompts]
        return [self._ids(one) for one in prompts]

    def text(self, text: str, *, param: str, add_bos: bool = True) -> list[int]:
        """The ids of a text. A text that cannot fit is refused without tokenizing it."""
        least = math.ceil(len(text.encode("utf-8", "replace")) / self._longest_token_bytes)
        if least > self._bounds.context:
            raise context_too_long(f"at least {least}", None, self._bounds.context, param=param)
        return self.tokenizer.encode(text, add_bos=add_bos and self.tokenizer.adds_bos)

    def _ids(self, ids: list[int]) -> list[int]:
        worst = max(ids, default=0)
        if worst >= self._bounds.vocab:
            raise ApiError(
                400,
                f"prompt: there is no token {worst}; ids are 0 to {self._bounds.vocab - 1}.",
                param="prompt",
            )
        return ids


def _plain(message: Message, number: int) -> dict[str, Any]:
    """A message as templates know it: `developer` is OpenAI's newer word for `system`."""
    for place, part in enumerate(message.content if isinstance(message.content, list) else ()):
        _check_part(part, f"messages[{number}].content[{place}]")
    plain: dict[str, Any] = msgspec.to_builtins(message)
    given = {field: value for field, value in plain.items() if value is not None}
    role = "system" if message.role == "developer" else message.role
    return {**given, "role": role, "content": plain["content"]}


def _check_part(part: ContentPart, param: str) -> None:
    if part.type != "text":
        raise ApiError(400, f"{param}: only text can be read, not {part.type}.", param=param)
    if part.text is None:
        raise ApiError(400, f"Missing required parameter: {param}.text.", param=f"{param}.text")


def _sentence(problem: str) -> str:
    return problem[:1].upper() + problem[1:] + ("" if problem.endswith(".") else ".")


def _builtins(tools: Sequence[Tool] | None) -> list[dict[str, Any]] | None:
    return [_without_none(msgspec.to_builtins(tool)) for tool in tools] if tools else None


def _without_none(tool: dict[str, Any]) -> dict[str, Any]:
    """Fields that were not given are no part of what the model reads."""
    function = {name: value for name, value in tool["function"].items() if value is not None}
    return {"type": "function", "function": function}


def _with_tools(messages: list[dict[str, Any]], tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """The conversation, its system message telling the functions that the template would not."""
    told = "\n".join(
        [
            "You can call these functions. To call some, answer with nothing but a JSON object "
            'for each, {"name": ..., "arguments": {...}}, one a line.',
            *(msgspec.json.encode(tool.function).decode() for tool in tools),
        ]
    )
    first = messages[0] if messages else {}
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return [{**first, "content": f"{first['content']}\n\n{told}"}, *messages[1:]]
    return [{"role": "system", "content": told}, *messages]
