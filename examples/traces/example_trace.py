"""Writes the trace that comes with the package (`--trace example`), from a seed.

Half an hour that has what a day has: a rate that rises and falls, three tenants, conversations that
go on, questions about the same documents, a batch that comes all at once. It is in the form of the
gateway's own log. All of it is drawn from one seed, so it is nobody's data.
"""

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from math import exp, log, pi, sin
from pathlib import Path

FILE = Path(__file__).parents[2] / "src/ridgeline/workload/example.jsonl.gz"
SEED = 20261201
LASTS_S = 1800.0
BEGINS_UNIX_S = 1_767_225_600  # 2026-01-01
BLOCK_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Line:
    """One request, as the gateway's log tells it."""

    at_s: float
    tenant: str
    session: str
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]

    def text(self) -> str:
        """As it stands in the file."""
        told = {
            "event": "request",
            "at_unix_s": round(BEGINS_UNIX_S + self.at_s, 3),
            "tenant": self.tenant,
            "session": self.session,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "prefix": "".join(f"{block:016x}" for block in self.blocks),
        }
        return json.dumps(told) + "\n"


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt that grows; its full blocks are named by `names`."""

    names: Iterator[int]
    tokens: int = 0
    blocks: tuple[int, ...] = ()

    def longer(self, tokens: int) -> "Text":
        """With so many tokens more, which nobody else has."""
        whole = (self.tokens + tokens) // BLOCK_TOKENS - len(self.blocks)
        return Text(self.names, self.tokens + tokens, (*self.blocks, *islice(self.names, whole)))


def about(chance: random.Random, median: float, spread: float) -> int:
    """A lognormal size, at least 1."""
    return max(1, round(exp(chance.gauss(log(median), spread))))


def daily(chance: random.Random, mean_per_s: float, peak: float) -> Iterator[float]:
    """Poisson arrivals whose rate is lowest at both ends and highest in the middle (thinning)."""
    at_s, most = 0.0, mean_per_s * peak
    while (at_s := at_s + chance.expovariate(most)) < LASTS_S:
        share = (1 + (peak - 1) * sin(2 * pi * at_s / LASTS_S - pi / 2)) / peak
        if chance.random() < share:
            yield at_s


def chats(names: Iterator[int]) -> Iterator[Line]:
    """Conversations of one assistant, whose system text they share."""
    chance = random.Random(f"{SEED} chats")
    system = Text(names).longer(640)
    for number, begins_s in enumerate(daily(chance, 0.3, 1.8)):
        text, at_s = system, begins_s
        while at_s < LASTS_S:
            text = text.longer(about(chance, 70, 0.9))
            answer = about(chance, 160, 0.7)
            yield Line(at_s, "assistant", f"chat-{number}", text.tokens, answer, text.blocks)
            text = text.longer(answer)
            at_s += answer * 0.02 + chance.uniform(5, 60)
            if chance.random() < 0.25:
                break


def questions(names: Iterator[int]) -> Iterator[Line]:
    """Questions about documents, of which a few are asked about again and again."""
    chance = random.Random(f"{SEED} questions")
    documents = [Text(names).longer(min(12_000, about(chance, 2_500, 0.8))) for _ in range(60)]
    weights = [1 / (place + 1) for place in range(len(documents))]
    for at_s in daily(chance, 0.5, 1.6):
        text = chance.choices(documents, weights)[0].longer(about(chance, 40, 0.5))
        yield Line(at_s, "search", "", text.tokens, about(chance, 60, 0.6), text.blocks)


def batches(names: Iterator[int]) -> Iterator[Line]:
    """Reports to be summed up, sixty at a time, every five minutes."""
    chance = random.Random(f"{SEED} batches")
    told = Text(names).longer(256)
    for begins_s in range(120, int(LASTS_S), 300):
        for _ in range(60):
            text = told.longer(about(chance, 900, 0.4))
            at_s = begins_s + chance.random() * 8
            yield Line(at_s, "reports", "", text.tokens, about(chance, 250, 0.3), text.blocks)


def example() -> str:
    """The whole file's text, in order of arrival."""
    names = count(1)
    lines = [*chats(names), *questions(names), *batches(names)]
    lines.sort(key=lambda line: line.at_s)
    return "".join(line.text() for line in lines)


if __name__ == "__main__":
    FILE.write_bytes(gzip.compress(example().encode(), 9, mtime=0))
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")
