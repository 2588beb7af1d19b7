"""Whether a prompt can have its first token as promised: by its length, and by what is ahead. Pure.

    promise   |- network -|- routing -|-- queue --|------------ prefill ------------|
                                                   the longest prompt that is let in

The queue's part is what the longest prompt may wait; a shorter one has more time to wait. Who
cannot be served in time is told at once, so that he does not delay those who can.
"""

from dataclasses import dataclass

from ridgeline.serving.policy.admit import Admit, Refuse


@dataclass(frozen=True, slots=True)
class Budget:
    """How a promised time is split, and what a node prefills in a second.

    Raises ValueError where nothing is left for the prefill.
    """

    promise_s: float
    network_s: float
    routing_s: float
    queue_s: float
    tokens_per_s: float

    def __post_init__(self) -> None:
        if self.prefill_s <= 0:
            raise ValueError(f"{self.promise_s} s are spent before any prefill: {self}")

    @property
    def overhead_s(self) -> float:
        """All before the prefill."""
        return self.network_s + self.routing_s + self.queue_s

    @property
    def prefill_s(self) -> float:
        """What is left for it."""
        return self.promise_s - self.overhead_s

    @property
    def limit_tokens(self) -> int:
        """The longest prompt."""
        return int(self.prefill_s * self.tokens_per_s)


def admit_prompt(tokens: int, ahead_tokens: int, budget: Budget) -> Admit | Refuse:
    """Whether a prompt may go to a node that has so many prompt tokens to compute before it."""
    if tokens > budget.limit_tokens:
        return Refuse(0.0, f"{tokens} tokens are more than the {budget.limit_tokens} of a promise")
    wait_s = ahead_tokens / budget.tokens_per_s
    over_s = wait_s + tokens / budget.tokens_per_s - budget.queue_s - budget.prefill_s
    said = f"{ahead_tokens} tokens, {wait_s * 1e3:.0f} ms, are ahead of it"
    if over_s > 0:
        return Refuse(over_s, f"{said}: {over_s * 1e3:.0f} ms too many")
    return Admit(wait_s, said)
