"""What a gateway worker keeps for one name that clients call: its line, replicas, who is held."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ridgeline.serving.policy.failures import RetryBudget
from ridgeline.serving.policy.pool import Pool
from ridgeline.serving.policy.prefill_rate import PeakRate
from ridgeline.serving.policy.route import Replica
from ridgeline.serving.policy.split import Split
from ridgeline.serving.policy.sticky import Saturation
from ridgeline.serving.simulate.asked import Asked
from ridgeline.serving.simulate.replica import VirtualReplica
from ridgeline.serving.simulate.setup import Model


@dataclass(slots=True)
class Lane:
    """What a worker keeps for one name that clients call; `slots` are those of its share."""

    kinds: Sequence[Model]
    pool: Pool = field(default_factory=Pool)
    views: dict[str, Replica] = field(default_factory=dict)
    replicas: dict[str, VirtualReplica] = field(default_factory=dict)
    held: list[Asked] = field(default_factory=list)
    waiting: dict[str, Asked] = field(default_factory=dict)
    last: str = ""
    peak: PeakRate = field(default_factory=PeakRate)
    saturation: Saturation = field(default_factory=Saturation)
    retries: RetryBudget = field(default_factory=RetryBudget)
    ready: int = 0
    slots: int = 0
    prefilling: int = 0
    last_decode: str = ""
    apart_tokens: int | None = None  # None: nobody only prefills
    split: Split | None = None

    @property
    def model(self) -> Model:
        """Whose rule, wait and price count."""
        return self.kinds[0]

    @property
    def context_tokens(self) -> int:
        """What every kind can hold."""
        return min(kind.engine.context_tokens for kind in self.kinds)

    @property
    def resumes(self) -> bool:
        """Whether an answer that broke off goes on elsewhere, wherever that is."""
        return all(kind.engine.resumes for kind in self.kinds)

    @property
    def held_s(self) -> float:
        """How much longer a request is held where none may be there at first: two starts."""
        from_none = [
            kind.starts_s
            for kind in self.kinds
            if kind.scaling is not None and kind.scaling.settings.least == 0
        ]
        return 2 * max(from_none, default=0.0)
