"""One request of a simulation, from its client's asking to its end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from ridgeline.serving.policy.route import Sent


class End(IntEnum):
    """How a request ended."""

    OPEN = 0
    ANSWERED = 1
    REFUSED = 2  # 429: a limit, or the queue
    UNREADY = 3  # 503: no replica
    TOO_LONG = 4  # 400: longer than the context
    BROKEN = 5  # its answer broke off, or no replica took it
    LEFT = 6  # its client left


class Client(Protocol):
    """Who asked."""

    def ended(self, asked: "Asked") -> None:
        """Its request has ended, as `asked.end` says; this is the instant."""


@dataclass(slots=True, eq=False)
class Asked:
    """A request. Times are in nanoseconds, -1 where it did not come so far.

    `blocks` name the full blocks of its prompt and then of its answer: equal names, equal text.
    `said` tokens of its answer were given by replicas that are gone. `worker` is the gateway's that
    it came to, `others` is how many requests were at its replica when it was sent there. `id` is
    its name in queues and schedulers. `away_ns` is one way to the region that answers it,
    and while it `travels` it is at no gateway. `brought` tokens of it were computed elsewhere than
    where they are decoded, 0 if none were. `adapter` is "" for the base model. It `is_seated`
    once a replica has begun with it.
    """

    number: int
    client: Client
    model: str
    prompt_tokens: int
    output_tokens: int
    blocks: Sequence[int] = ()
    tenant: str = ""
    session: str = ""
    at_ns: int = -1
    entered_ns: int = -1
    sent_ns: int = -1
    first_ns: int = -1
    done_ns: int = -1
    end: End = End.OPEN
    reason: str = ""
    retry_after_s: float = 0.0
    replica: str = ""
    cached_tokens: int = 0
    said: int = 0
    tries: int = 0
    tried: frozenset[str] = field(default=frozenset())
    reserved_ns: int = -1
    sent: Sent | None = None
    worker: int = 0
    others: int = 0
    gap_ns: int = 0
    away_ns: int = 0
    travels: bool = False
    adapter: str = ""
    brought: int = 0
    is_seated: bool = False
    id: str = ""

    def __post_init__(self) -> None:
        self.id = str(self.number)
