"""The reference prompts as requests: those of prompts.yaml, and long ones made to measure.

A long prompt is a fact, many numbered lines, and a question for the fact: whoever reads only the
last tokens, or fewer, has lost it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from ridgeline.serving.policy.answers import Category

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
#: Tokens of an answer, and likeliest tokens told for each.
ANSWER_TOKENS = 24
LONG_ANSWER_TOKENS = 16
TOP = 5
SEEDS = 16
#: How long the long prompts are, as shares of the longest.
RUNGS = (0.25, 0.5, 1.0)
_GOODS = ("pears", "bricks", "ropes", "lamps", "books", "wheels", "tiles")


@dataclass(frozen=True, slots=True)
class Case:
    """A request without its model. `path` says to which API."""

    category: Category
    name: str
    path: str
    body: Mapping[str, Any]

    @property
    def is_raw(self) -> bool:
        """A plain completion: no chat template."""
        return self.path == COMPLETIONS


def packaged() -> list[Case]:
    """All but the long ones."""
    text = files("ridgeline.serving.evaluate").joinpath("prompts.yaml").read_text("utf-8")
    found = []
    for category, prompts in yaml.safe_load(text).items():
        for prompt in prompts:
            name = f"{category}/{prompt.pop('name')}"
            found += _of(Category(category), name, prompt)
    return found


def long_case(name: str, lines: int) -> Case:
    """A long prompt of so many lines."""
    body = {"messages": [{"role": "user", "content": long_text(lines)}]}
    return _case(Category.LONG, f"{Category.LONG}/{name}", {**body, "temperature": 0.0})


def long_text(lines: int) -> str:
    """The text; each line has about as many tokens as any other."""
    rows = [
        f"Line {1000 + at}: shelf {10 + at * 7 % 90} holds {10 + at * 13 % 90} boxes of "
        f"{_GOODS[at % len(_GOODS)]}."
        for at in range(lines)
    ]
    fact = "The code word of this document is LANTERN."
    question = "What is the code word of this document? Answer in one sentence, then say why."
    return "\n".join([fact, *rows, question])


def _of(category: Category, name: str, prompt: dict[str, Any]) -> list[Case]:
    if category is Category.DEFAULTS:
        return [
            _case(category, f"{name}-{seed}", {**prompt, "seed": seed}) for seed in range(SEEDS)
        ]
    return [_case(category, name, {**prompt, "temperature": 0.0})]


def _case(category: Category, name: str, body: dict[str, Any]) -> Case:
    """Both APIs are asked for log-probabilities, each in its own words."""
    tokens = LONG_ANSWER_TOKENS if category is Category.LONG else ANSWER_TOKENS
    asked = {**body, "max_tokens": tokens, "return_token_ids": True}
    if "prompt" in body:
        return Case(category, name, COMPLETIONS, {**asked, "logprobs": TOP})
    return Case(category, name, CHAT, {**asked, "logprobs": True, "top_logprobs": TOP})
