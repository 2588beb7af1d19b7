"""One sequence as the engine knows it: a request's prompt and one of its `n` ways to go on.

Token ids live here; `policy.batch` knows the same sequence by its name and counts. Made and moved
on by `loop`.
"""

import hashlib
from array import array
from collections.abc import Collection
from dataclasses import dataclass, field

from ridgeline.serving.engine.draft import Guesser
from ridgeline.serving.engine.messages import Add
from ridgeline.serving.engine.sampler import State


@dataclass(slots=True)
class Continuation:
    """A sequence. `tokens` holds prompt and generated ids, `state` is the sampler's.

    `id` is its name in the policy. `hashes` counts the full blocks whose hash the policy knows;
    `digest` is the last of that chain. `guesser` comes with the first guess.
    """

    add: Add
    index: int
    tokens: list[int]
    state: State
    digest: bytes
    hashes: int = 0
    cached_tokens: int = 0
    guesser: Guesser | None = None
    id: str = field(init=False)

    def __post_init__(self) -> None:
        self.id = f"{self.add.id}#{self.index}"

    @property
    def generated(self) -> int:
        """Tokens generated so far, resumed ones included."""
        return len(self.tokens) - len(self.add.prompt)

    @property
    def room(self) -> int:
        """How many guesses could hold before its last token, which is not guessed."""
        return self.add.sampling.max_tokens - self.generated - 1

    def finish(self, eos_ids: Collection[int]) -> str | None:
        """Why its last token was the last, if it was: "stop" or "length"."""
        rules, token, generated = self.add.sampling, self.tokens[-1], self.generated
        ends = token in rules.stop_token_ids or (token in eos_ids and not rules.ignore_eos)
        if (ends and generated >= rules.min_tokens) or self.state.complete:
            return "stop"
        return "length" if generated >= rules.max_tokens else None

    def chain(self, block_size: int) -> list[bytes]:
        """The hashes of blocks that are full now and were not told yet.

        Each covers all before it. The hash is a cryptographic one, since a collision would show
        one client's cache to another.
        """
        chain = []
        while (self.hashes + 1) * block_size <= len(self.tokens):
            start = self.hashes * block_size
            block = array("I", self.tokens[start : start + block_size]).tobytes()
            self.digest = hashlib.blake2b(self.digest + block, digest_size=16).digest()
            self.hashes += 1
            chain.append(self.digest)
        return chain
