"""Answers in one piece: deltas are gathered and told as one JSON object. `endpoints` calls it."""

from collections.abc import Callable
from typing import Any

from ridgeline.serving.engine.answer import Answer
from ridgeline.serving.engine.continuation import TokenLogprob
from ridgeline.serving.engine.tokenizer import Tokenizer
from ridgeline.serving.engine.wire import (
    Head,
    Speech,
    chat_logprobs,
    completion_logprobs,
    encode,
)


class _Gathered:
    """One choice, complete or on its way."""

    def __init__(self, speech: Speech | None) -> None:
        self.text: list[str] = []
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.finish = "stop"
        self.stop: str | None = None
        self.speech = speech


async def _gather(answer: Answer, choices: list[_Gathered]) -> None:
    async for deltas in answer.deltas():
        for delta in deltas:
            choice = choices[delta.choice]
            choice.text.append(delta.text)
            choice.tokens += delta.tokens
            choice.logprobs += delta.logprobs
            choice.finish = delta.finish or choice.finish
            choice.stop = delta.stop or choice.stop
            if choice.speech is not None:
                choice.speech.deltas(delta)


async def whole_chat(
    answer: Answer,
    head: Head,
    tokenizer: Tokenizer,
    choices: int,
    *,
    tools: frozenset[str] | None,
    logprobs: bool,
    prompt_ids: list[list[int]] | None = None,
) -> bytes:
    """A `chat.completion` object; `prompt_ids` as in `stream`. Raises ApiError."""
    gathered = [_Gathered(Speech(tools)) for _ in range(choices)]
    await _gather(answer, gathered)

    def told(number: int, choice: _Gathered) -> dict[str, Any]:
        assert choice.speech is not None, "made above"
        ids = {} if prompt_ids is None else {"token_ids": choice.tokens}
        return {
            "index": number,
            "message": choice.speech.message("".join(choice.text)),
            "logprobs": chat_logprobs(tokenizer, choice.logprobs) if logprobs else None,
            "finish_reason": choice.speech.finish(choice.finish),
            **ids,
        }

    more = {} if prompt_ids is None else {"prompt_token_ids": prompt_ids[0]}
    return _told(answer, head, "chat.completion", gathered, told, more)


async def whole_completion(
    answer: Answer,
    head: Head,
    tokenizer: Tokenizer,
    choices: int,
    *,
    echoes: list[str] | None,
    logprobs: bool,
    prompt_ids: list[list[int]] | None = None,
) -> bytes:
    """A `text_completion` object; `prompt_ids` as in `stream`. Raises ApiError."""
    gathered = [_Gathered(None) for _ in range(choices)]
    await _gather(answer, gathered)

    def told(number: int, choice: _Gathered) -> dict[str, Any]:
        echo = echoes[number] if echoes else ""
        ids: dict[str, Any] = {}
        if prompt_ids is not None:
            ids = {"token_ids": choice.tokens, "prompt_token_ids": prompt_ids[number]}
        return {
            "index": number,
            "text": echo + "".join(choice.text),
            "logprobs": completion_logprobs(tokenizer, choice.logprobs) if logprobs else None,
            "finish_reason": choice.finish,
            **ids,
        }

    return _told(answer, head, "text_completion", gathered, told, {})


def _told(
    answer: Answer,
    head: Head,
    kind: str,
    gathered: list[_Gathered],
    told: Callable[[int, _Gathered], dict[str, Any]],
    more: dict[str, Any],
) -> bytes:
    choices = [
        told(number, choice) | ({"stop_reason": choice.stop} if choice.stop is not None else {})
        for number, choice in enumerate(gathered)
    ]
    return encode(head.of(kind, choices=choices, usage=answer.usage, **more))
