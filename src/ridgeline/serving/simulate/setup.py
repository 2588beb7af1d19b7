"""What is simulated, as plain values: models on machines, tenants, the gateway, and faults.

A spec becomes one of these (`from_spec`); scenarios and tests write them. All times are in seconds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from ridgeline.serving.fake.timing import Machine
from ridgeline.serving.policy.gate import Criteria
from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.policy.price import Price
from ridgeline.serving.policy.rolling import Rolling
from ridgeline.serving.policy.rollout import Plan
from ridgeline.serving.policy.scale import Settings
from ridgeline.serving.policy.scale_rules import OURS, Rule
from ridgeline.serving.simulate.adapters import Adapters
from ridgeline.serving.simulate.guesses import Guessing
from ridgeline.serving.simulate.tiers import Tiers

#: A simulation begins on a Monday at 00:00 UTC, for schedules and budgets (Unix seconds).
BEGINS_UNIX_S = 345_600

_FREE = Price(Decimal(0), Decimal(0), Decimal(0))


@dataclass(frozen=True, slots=True)
class Engine:
    """What one replica runs on and how.

    `arrive_s` passes from the gateway's decision until the scheduler sees the request (network,
    HTTP, tokenizer), `deliver_s` from a step's end until its client has the token. An engine that
    `resumes` lets an answer that broke off go on elsewhere. One that decides `ahead` knows what the
    next step is while one runs (vLLM's async scheduling): who comes meanwhile is in the one after.
    """

    machine: Machine
    max_seqs: int = 256
    max_batched_tokens: int = 2048
    block_tokens: int = 16
    prefix_caching: bool = True
    max_model_len: int = 0
    arrive_s: float = 0.0
    deliver_s: float = 0.0
    resumes: bool = False
    ahead: bool = False
    guessing: Guessing | None = None
    tiers: Tiers | None = None
    adapters: Adapters | None = None

    @property
    def blocks(self) -> int:
        """Blocks of its cache."""
        return max(1, self.machine.kv_tokens // self.block_tokens)

    @property
    def context_tokens(self) -> int:
        """The longest sequence that it can hold."""
        room = self.blocks * self.block_tokens
        return min(self.max_model_len or room, room)


@dataclass(frozen=True, slots=True)
class Scaling:
    """How replicas follow the demand; `floor` is what a schedule wants at a time (virtual, s)."""

    settings: Settings
    every_s: float = 2.0
    floor: Callable[[float], int] = lambda _: 0
    rule: Rule = OURS


@dataclass(frozen=True, slots=True)
class Spot:
    """Machines that their owner takes back: so often an hour each, so long after saying so."""

    per_hour: float
    notice_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where replicas run: each on `devices` of those of a `pool`; of none there is no end."""

    region: str = ""
    pool: str = ""
    devices: int = 1
    spot: Spot | None = None


class Role(StrEnum):
    """What replicas of a kind do of a request."""

    BOTH = "both"
    PREFILL = "prefill"  # its prompt, and then its cache goes to one that decodes
    DECODE = "decode"  # its answer; the prompt too where that is short, or nobody prefills


@dataclass(frozen=True, slots=True)
class Link:
    """What each prefill replica sends caches over, one after the other."""

    bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Model:
    """Replicas of one kind. Without `scaling` there are always as many as at first.

    Clients call `serves`, which is `name` where it is not given; where several kinds serve one
    name, its rule, wait and price are those of the first. `start_s` are the stages of a start.
    `slots` are requests at once in one replica. What is `ready_early_s` gets requests so long
    before it can work, as where a health page says so. Where some kinds prefill, over `link`, and
    others decode, prompts with fewer than `apart_tokens` to compute are computed where they are
    decoded.
    """

    name: str
    engine: Engine
    replicas: int = 1
    scaling: Scaling | None = None
    start_s: Mapping[str, float] = field(default_factory=dict)
    rule: str = "prefix-sticky"
    wait_s: float = 0.5
    slots: int = 256
    price: Price = _FREE
    usd_per_hour: Decimal = Decimal(0)
    drain_s: float = 600.0
    ready_early_s: float = 0.0
    serves: str = ""
    place: Place = Place()
    role: Role = Role.BOTH
    link: Link | None = None
    apart_tokens: int = 0

    @property
    def served(self) -> str:
        """What clients call it."""
        return self.serves or self.name

    @property
    def starts_s(self) -> float:
        """From asking for a replica to its first token."""
        return sum(self.start_s.values())


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who asks. Its clients are in `home`; its data may be in the regions of `residency` only."""

    name: str
    priority_class: str = "default"
    weight: float = 1.0
    limits: Limits = field(default_factory=Limits)
    home: str = ""
    residency: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Gateway:
    """What is in front; as `gateway.config` has it. Not `fair`: all tenants queue as one."""

    workers: int = 1
    hold_s: float = 5.0
    most_held: int = 1000
    retries: int = 2
    probe_every_s: float = 2.0
    probe_starting_s: float = 0.1
    fair: bool = True


@dataclass(frozen=True, slots=True)
class Region:
    """A place with gateways and replicas of its own; `away_s` are round trips to other regions."""

    name: str = ""
    away_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """From `at_s` on the kind `new` takes the place of the kind `old`, which serves the same name.

    `how`: as Ridgeline's rollouts go, or as a rolling update does. `new` has no replicas before.
    `is_alike` is what the comparison with its reference says of it.
    """

    at_s: float
    old: str
    new: str
    how: Plan | Rolling = field(default_factory=Plan)
    criteria: Criteria = field(default_factory=Criteria)
    is_alike: bool = True


class Trouble(StrEnum):
    """What can go wrong with a replica, or with a whole region."""

    DIES = "dies"  # its process ends; what runs there is lost, and it is started anew
    SLOW = "slow"  # its steps take `factor` times as long
    SILENT = "silent"  # it reports nothing of itself
    LOST = "lost"  # a region: its gateways and replicas are gone, and start anew when it is back


@dataclass(frozen=True, slots=True)
class Fault:
    """At `at_s`, and for `lasts_s` (0: for ever) where that means something.

    To replica `number` of the kind `model`, counted from 0 in the order of starts; or to a region.
    """

    at_s: float
    trouble: Trouble
    model: str = ""
    number: int = 0
    lasts_s: float = 0.0
    factor: float = 1.0
    region: str = ""


@dataclass(frozen=True, slots=True)
class Serving:
    """All of it. `seed` is of all that is drawn; with `jumps` off engines go step by step.

    `pools` are the devices that there are, by name. With `gaps` the longest wait between two tokens
    of each answer is known too.
    """

    models: tuple[Model, ...]
    tenants: tuple[Tenant, ...] = ()
    gateway: Gateway = Gateway()
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    jumps: bool = True
    gaps: bool = False
    pools: Mapping[str, int] = field(default_factory=dict)
    regions: tuple[Region, ...] = (Region(),)
    changes: tuple[Change, ...] = ()
