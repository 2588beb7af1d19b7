"""How many tokens a prompt may have, before anybody has counted them. Pure.

A gateway has no tokenizer; it learns from each answer's usage how many tokens a model makes of a
byte, and reserves by the upper end of what it has seen: up at once, down slowly. One request more
than reserved is possible, many in a row are not. Routing compares prompts with what is cached, and
wants neither more nor less than the truth: for it there is the mean.
"""

import math
from dataclasses import dataclass

#: Tokenizers of today make a token of about four bytes of prose, and of one to two of the worst.
_LEAST, _FIRST, _MOST = 1 / 16, 1 / 2, 1.0
_DOWN = 1 / 64
_USUAL, _WEIGHT = 1 / 4, 1 / 16
#: A chat template's own words, which no client sends.
_TEMPLATE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is known of one model's tokens."""

    tokens_per_byte: float = _FIRST
    mean_tokens_per_byte: float = _USUAL


def estimate(sizes: Sizes, prompt_bytes: int) -> int:
    """Tokens to reserve for a prompt; the caller caps it at the model's context."""
    return math.ceil((prompt_bytes + _TEMPLATE_BYTES) * sizes.tokens_per_byte)


def expected(sizes: Sizes, prompt_bytes: int) -> int:
    """Tokens that a prompt has most likely."""
    return math.ceil((prompt_bytes + _TEMPLATE_BYTES) * sizes.mean_tokens_per_byte)


def learned(sizes: Sizes, prompt_bytes: int, prompt_tokens: int) -> Sizes:
    """What is known after a prompt of so many bytes turned out to have so many tokens."""
    seen = prompt_tokens / (prompt_bytes + _TEMPLATE_BYTES)
    bounded = min(max(seen, _LEAST), _MOST)
    known = sizes.tokens_per_byte
    mean = sizes.mean_tokens_per_byte
    return Sizes(
        bounded if bounded > known else known + (bounded - known) * _DOWN,
        mean + (bounded - mean) * _WEIGHT,
    )
