"""Conversations to route: seeded ten-turn chats, a seeded heavy tail, and recorded traces.

A talk is what one client says in order: each turn is asked a while after the answer to the one
before it, and its prompt is all that was said so far. A single request is a talk of one turn.
The same arguments give the same talks.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp, log

from ridgeline.workload import Request


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. `stream` names the full blocks of prompt and answer: equal names, equal text.

    Only the leading ones are the prompt's; the others are what a cache holds when it is answered.
    """

    prompt_tokens: int
    output_tokens: int
    stream: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Talk:
    """Turns in order, the first asked at `at_s`, each later one `think_s` after an answer's end."""

    name: str
    at_s: float
    turns: tuple[Turn, ...]
    think_s: float = 0.0
    tenant: str = ""


def chats(
    count: int,
    *,
    per_s: float,
    seed: int = 0,
    turns: int = 10,
    said_tokens: int = 150,
    answer_tokens: int = 120,
    system_tokens: int = 0,
    think_s: float = 2.0,
    block_tokens: int = 16,
) -> list[Talk]:
    """Conversations that begin as a Poisson stream; lengths of turns scatter by half their mean.

    `system_tokens` of text are the same in all of them.
    """
    chance = random.Random(seed)
    starts = accumulate(chance.expovariate(per_s) for _ in range(count))
    system = tuple(range(system_tokens // block_tokens))
    talks = []
    for number, at_s in enumerate(starts):
        own = (number + 1) << 32
        tokens, made = system_tokens, []
        for _ in range(turns):
            tokens += max(1, round(chance.uniform(0.5, 1.5) * said_tokens))
            answer = max(1, round(chance.uniform(0.5, 1.5) * answer_tokens))
            blocks = (tokens + answer) // block_tokens
            stream = system + tuple(own + index for index in range(len(system), blocks))
            made.append(Turn(tokens, answer, stream))
            tokens += answer
        talks.append(Talk(f"chat-{number}", at_s, tuple(made), think_s))
    return talks


def heavy_tail(
    count: int,
    *,
    per_s: float,
    seed: int = 0,
    median_tokens: int = 600,
    spread: float = 1.6,
    most_tokens: int = 60_000,
    answer_tokens: int = 60,
    documents: int = 60,
    block_tokens: int = 16,
) -> list[Talk]:
    """Single requests with lognormal prompts; each begins with one of some documents.

    The documents are lognormal too and asked for by Zipf's law, a short question behind each.
    """
    chance = random.Random(seed)
    lengths = [
        min(most_tokens, round(exp(chance.gauss(log(median_tokens), spread))) + 1)
        for _ in range(documents)
    ]
    weights = [1 / (rank + 1) for rank in range(documents)]
    starts = accumulate(chance.expovariate(per_s) for _ in range(count))
    talks = []
    for number, at_s in enumerate(starts):
        chosen = chance.choices(range(documents), weights)[0]
        shared = lengths[chosen] // block_tokens
        prompt = lengths[chosen] + chance.randint(20, 200)
        answer = max(1, round(chance.expovariate(1 / answer_tokens)))
        document, own = (chosen + 1) << 40, (number + 1) << 80
        blocks = (prompt + answer) // block_tokens
        stream = tuple((document if i < shared else own) + i for i in range(blocks))
        talks.append(Talk(f"ask-{number}", at_s, (Turn(prompt, answer, stream),)))
    return talks


def of_trace(requests: Iterable[Request], speed: float = 1.0) -> list[Talk]:
    """A recorded trace as single requests, `speed` times as fast as it was recorded."""
    return [
        Talk(
            f"trace-{number}",
            one.at_s / speed,
            (Turn(one.prompt_tokens, max(1, one.output_tokens), tuple(one.blocks)),),
        )
        for number, one in enumerate(requests)
    ]


def prompt_tokens(talks: Sequence[Talk]) -> int:
    """What all prompts are together, with no cache anywhere."""
    return sum(turn.prompt_tokens for talk in talks for turn in talk.turns)
