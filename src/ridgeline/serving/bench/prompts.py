"""Synthetic prompts with a known number of tokens, each with a beginning of its own.

A prompt is a row of common English words, each of them one token. Which words are, is asked of
the server's own tokenizer (`Vocabulary.learn`), so that sizes are exact; without it the words
are taken to be one token each, and the report says so. The first words of a prompt are its own,
so that no prefix cache finds it by accident.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ridgeline.workload import Request

LEAD = "The"
_WORDS = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book "
    "eye job word business issue side kind head house service friend father power hour game line "
    "end member law car city community name president team minute idea body information back "
    "parent face others level office door health person art war history party result change "
    "morning reason research girl guy moment air teacher force education foot boy age policy "
    "music market sense nation plan college interest death experience effect use class control "
    "field development role effort rate heart drug show leader light voice wife police mind price "
    "report decision son view relationship town road arm difference value building action season "
    "society tax director position player record paper space ground form event matter center "
    "project table court star"
)
CANDIDATES = tuple(_WORDS.split())
LEAST_WORDS = 32
RING_WORDS = 1 << 16
DRAWN_WORDS = 6

Count = Callable[[str], Awaitable[int | None]]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words of one token each, and the tokens that every prompt costs besides (template, lead).

    `exact` is False where no tokenizer was there to ask.
    """

    words: tuple[str, ...]
    overhead_tokens: int
    exact: bool

    @classmethod
    async def learn(cls, count: Count) -> "Vocabulary":
        """Find by asking `count` (text -> tokens of the whole prompt, None where unknown).

        Words are tested in groups that are halved until they pass or are single, so a few
        questions do. A sample of the result is counted before it is believed.
        """
        overhead = await count(LEAD)
        if overhead is None:
            return GUESSED
        words = await _single(CANDIDATES, count, overhead)
        sample = random.Random(0).choices(words or CANDIDATES, k=200)
        if len(words) < LEAST_WORDS or await count(_text(sample)) != overhead + len(sample):
            return GUESSED
        return cls(tuple(words), overhead, exact=True)


GUESSED = Vocabulary(CANDIDATES, 1, exact=False)


def _text(words: Sequence[str]) -> str:
    return " ".join((LEAD, *words))


async def _single(words: Sequence[str], count: Count, overhead: int) -> list[str]:
    """Those of `words` that add one token each."""
    if await count(_text(words)) == overhead + len(words):
        return list(words)
    if len(words) == 1:
        return []
    middle = len(words) // 2
    first = await _single(words[:middle], count, overhead)
    return first + await _single(words[middle:], count, overhead)


@dataclass(slots=True)
class Prompts:
    """Writes the prompt of each request. The same seed gives the same prompts.

    Text is cut from one long random ring of words, which costs microseconds a prompt whatever
    its size; the first words of each cut are drawn anew, so that no two cuts begin alike.
    `shared_tokens` at the beginning are the same for all prompts of the run. `block_tokens`
    belongs to a trace whose requests name the blocks of their prompts: equal ids become equal
    text.
    """

    vocabulary: Vocabulary
    seed: int
    shared_tokens: int = 0
    block_tokens: int = 0
    _ring: str = field(init=False, repr=False)
    _starts: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        words = random.Random(f"ring {self.seed}").choices(self.vocabulary.words, k=RING_WORDS)
        self._ring = "".join(f" {word}" for word in words)
        self._starts = [0]
        for word in words:
            self._starts.append(self._starts[-1] + len(word) + 1)

    @property
    def least_tokens(self) -> int:
        """The shortest prompt there is: template, first word and shared prefix, and one word."""
        return self.vocabulary.overhead_tokens + self.shared_tokens + 1

    def text(self, index: int, request: Request) -> str:
        """The prompt of the run's request number `index`, `request.prompt_tokens` long."""
        assert request.prompt_tokens >= self.least_tokens, (request, self.least_tokens)
        words = request.prompt_tokens - self.vocabulary.overhead_tokens
        parts = [LEAD]
        if self.shared_tokens:
            parts.append(self._cut("shared", self.shared_tokens))
        words -= self.shared_tokens
        if self.block_tokens:
            words = self._add_blocks(parts, request.blocks, words)
        parts.append(self._cut(f"own {index}", words))
        return "".join(parts)

    def _add_blocks(self, parts: list[str], blocks: Sequence[int], words: int) -> int:
        for block in blocks:
            length = min(words, self.block_tokens)
            parts.append(self._cut(f"block {block}", length))
            words -= length
        return words

    def _cut(self, name: str, words: int) -> str:
        """`words` words that follow from `name`: a few drawn, the others cut from the ring."""
        rng = random.Random(f"{name} {self.seed}")
        drawn = min(words, DRAWN_WORDS)
        parts = [f" {word}" for word in rng.choices(self.vocabulary.words, k=drawn)]
        at = rng.randrange(RING_WORDS)
        left = words - drawn
        while left > 0:
            end = min(RING_WORDS, at + left)
            parts.append(self._ring[self._starts[at] : self._starts[end]])
            left -= end - at
            at = 0
        return "".join(parts)
