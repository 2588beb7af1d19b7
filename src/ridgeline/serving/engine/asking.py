"""From a checked request to what the engine is asked: limits of this model, defaults, ids.

Used by `endpoints`. What needs no model was checked by `serving.openai.read` already.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from ridgeline.serving.engine.messages import Add, Sampling
from ridgeline.serving.openai import ApiError, Generating, context_too_long

N = TypeVar("N", int, float)

#: How many sequences one HTTP request may ask for, over all its prompts.
MOST_CHOICES = 512


@dataclass(frozen=True, slots=True)
class Bounds:
    """What requests to one model must respect: its context and vocabulary, in tokens."""

    context: int
    vocab: int
    eos_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Wish:
    """How an answer is to be made, beyond what chat and completions have in common.

    `max_tokens` None: as many as the context holds, but at most `default_max_tokens`.
    """

    param: str
    max_tokens: int | None
    default_max_tokens: int | None = None
    logprobs: int | None = None
    grammar: str | None = None


def ask(
    request: Generating, request_id: str, prompts: Sequence[list[int]], wish: Wish, bounds: Bounds
) -> list[Add]:
    """The engine's requests, one a prompt, for `prompts` of token ids.

    Raises ApiError 400 for what this model cannot do.
    """
    n = request.n or 1
    if n * len(prompts) > MOST_CHOICES:
        raise ApiError(
            400,
            f"{len(prompts)} prompts with n={n} are more than {MOST_CHOICES} answers.",
            param="n",
        )
    check_ids(request, bounds)
    return [
        Add(
            id=f"{request_id}-{number}",
            prompt=prompt,
            sampling=_sampling(request, len(prompt), wish, bounds),
            n=n,
            priority=request.priority or 0,
            salt=(request.cache_salt or "").encode(),
        )
        for number, prompt in enumerate(prompts)
    ]


def check_ids(request: Generating, bounds: Bounds) -> None:
    """Raises ApiError 400 for token ids that the vocabulary does not have."""
    for param, ids in (
        ("logit_bias", request.logit_bias or ()),
        ("stop_token_ids", request.stop_token_ids or ()),
    ):
        for token in ids:
            if not 0 <= token < bounds.vocab:
                raise ApiError(
                    400,
                    f"{param}: there is no token {token}; ids are 0 to {bounds.vocab - 1}.",
                    param=param,
                )


def stop_texts(request: Generating) -> list[str]:
    """The stop strings as a list."""
    return [request.stop] if isinstance(request.stop, str) else list(request.stop or ())


def ending_ids(request: Generating, bounds: Bounds) -> frozenset[int]:
    """The tokens that end an answer and are no part of its text."""
    stops = frozenset(request.stop_token_ids or ())
    return stops if request.ignore_eos else stops | bounds.eos_ids


def _sampling(request: Generating, prompt_tokens: int, wish: Wish, bounds: Bounds) -> Sampling:
    max_tokens = _max_tokens(prompt_tokens, wish, bounds)
    min_tokens = request.min_tokens or 0
    if min_tokens > max_tokens:
        raise ApiError(
            400,
            f"min_tokens {min_tokens} is more than max_tokens {max_tokens}.",
            param="min_tokens",
        )
    return Sampling(
        max_tokens=max_tokens,
        temperature=_or(request.temperature, 1.0),
        # At 0 only the likeliest token stays, whatever the least positive share is called.
        top_p=max(_or(request.top_p, 1.0), 1e-6),
        top_k=max(_or(request.top_k, 0), 0),
        min_p=_or(request.min_p, 0.0),
        seed=request.seed,
        repetition_penalty=_or(request.repetition_penalty, 1.0),
        presence_penalty=_or(request.presence_penalty, 0.0),
        frequency_penalty=_or(request.frequency_penalty, 0.0),
        logit_bias=request.logit_bias or {},
        stop_token_ids=tuple(request.stop_token_ids or ()),
        ignore_eos=bool(request.ignore_eos),
        min_tokens=min_tokens,
        logprobs=wish.logprobs,
        grammar=wish.grammar,
    )


def _max_tokens(prompt_tokens: int, wish: Wish, bounds: Bounds) -> int:
    if not prompt_tokens:
        raise ApiError(400, "The prompt is empty: it has no token.", param=wish.param)
    room = bounds.context - prompt_tokens
    if room < max(wish.max_tokens or 1, 1):
        raise context_too_long(prompt_tokens, wish.max_tokens, bounds.context, param=wish.param)
    if wish.max_tokens is not None:
        return wish.max_tokens
    return min(room, wish.default_max_tokens or room)


def _or(value: N | None, default: N) -> N:
    return default if value is None else value
