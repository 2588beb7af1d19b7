"""One step of the batcher as a value: what is computed, who was admitted or preempted, and why.

`batch` decides it by filling a `Draft`; the engine and the simulator run it.
"""

from dataclasses import dataclass, field

from ridgeline.serving.policy.blocks import Copy
from ridgeline.serving.policy.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one step may hold: sequences at once, and tokens over all of them.

    Raises ValueError where a step could not give every sequence one token.
    """

    max_seqs: int
    max_batched_tokens: int

    def __post_init__(self) -> None:
        if not 1 <= self.max_seqs <= self.max_batched_tokens:
            raise ValueError(
                f"max_seqs {self.max_seqs} must be 1 to max_batched_tokens "
                f"({self.max_batched_tokens}): each running sequence needs a token a step"
            )


@dataclass(slots=True)  # not frozen, which would treble what one costs: a step makes many
class Chunk:
    """Rows `start`..`start + count` of a sequence; `samples`: the last row gives a new token.

    The last `guesses` rows hold tokens that are only guessed. The row before them and each of
    them gives a token, of which the caller keeps those up to the first that was guessed wrong.
    """

    id: str
    start: int
    count: int
    samples: bool
    guesses: int = 0


@dataclass(frozen=True, slots=True)
class Admitted:
    """A sequence that got a seat in this step, and how many of its tokens the cache had."""

    id: str
    cached_tokens: int


@dataclass(slots=True)  # not frozen, as a chunk
class Step:
    """One decision. Execute `copies` in order, then compute `chunks`.

    `reasons` are sentences for people: who waits, was cut or preempted, and why.
    """

    chunks: tuple[Chunk, ...]
    copies: tuple[Copy, ...]
    admitted: tuple[Admitted, ...]
    preempted: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """Rows of the step's flat batch."""
        return sum(chunk.count for chunk in self.chunks)

    @property
    def decodes(self) -> bool:
        """Whether each row gives a token: nothing else is computed."""
        return all(chunk.samples and chunk.count == 1 + chunk.guesses for chunk in self.chunks)


@dataclass(slots=True)
class Draft:
    """A step while it is decided; `budget` is what is left of its tokens."""

    budget: int
    chunks: list[Chunk] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    admitted: list[Admitted] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def take(self, sequence: Sequence, count: int) -> None:
        """It computes so many of the tokens that it owes."""
        owed = sequence.tokens - sequence.computed
        self.chunks.append(Chunk(sequence.id, sequence.computed, count, count == owed))
        self.budget -= count
        if count < owed:
            self.reasons.append(f"{sequence.id} computes {count} of the {owed} tokens it owes")

    def drop(self, sequence: Sequence) -> None:
        """It computes nothing after all."""
        for index, chunk in enumerate(self.chunks):
            if chunk.id == sequence.id:
                self.budget += chunk.count
                del self.chunks[index]
                return

    def step(self) -> Step:
        """As it was decided."""
        return Step(
            tuple(self.chunks),
            tuple(self.copies),
            tuple(self.admitted),
            tuple(self.preempted),
            tuple(self.reasons),
        )
