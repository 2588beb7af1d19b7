"""What came out of a simulation: a row for each request, and what the replicas cost.

Rows are kept in columns of whole numbers, 120 bytes a request, so that a day of a million requests
needs no gigabytes. Times of a request are from its client's asking, in seconds.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.serving.simulate.asked import Asked, End
from ridgeline.serving.simulate.series import Series
from ridgeline.timeline import NS

Column = NDArray[np.int64]
#: The columns, in order; `-1` where a request did not come so far.
COLUMNS = (
    "number", "model", "tenant", "replica", "end", "at_ns", "sent_ns", "first_ns", "done_ns",
    "prompt_tokens", "cached_tokens", "said_tokens", "tries", "gap_ns", "entered_ns",
)  # fmt: skip


class Rows:
    """All requests that have ended, in the order of their ends."""

    def __init__(self) -> None:
        self._values = array("q")
        self._names: dict[str, int] = {}

    def __len__(self) -> int:
        """How many."""
        return len(self._values) // len(COLUMNS)

    def add(self, asked: Asked) -> None:
        """One has ended."""
        name = self._number
        self._values.extend(
            (
                asked.number, name(asked.model), name(asked.tenant), name(asked.replica),
                asked.end, asked.at_ns, asked.sent_ns, asked.first_ns, asked.done_ns,
                asked.prompt_tokens, asked.cached_tokens, asked.said, asked.tries, asked.gap_ns,
                asked.entered_ns,
            )
        )  # fmt: skip

    @property
    def names(self) -> Sequence[str]:
        """What the numbers in `model`, `tenant` and `replica` stand for."""
        return list(self._names)

    def columns(self) -> dict[str, Column]:
        """By name; each of all requests."""
        table = np.frombuffer(self._values, dtype=np.int64).reshape(-1, len(COLUMNS))
        return {name: table[:, index] for index, name in enumerate(COLUMNS)}

    def _number(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))


@dataclass(frozen=True, slots=True)
class ReplicaTime:
    """When a replica began, how long it was there and what it did, in seconds."""

    name: str
    model: str
    began_s: float
    there_s: float
    starting_s: float
    busy_s: float
    steps: int
    preemptions: int
    usd: Decimal


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run. `lasted_s` is from its begin to the end of its last request."""

    columns: Mapping[str, Column]
    names: Sequence[str]
    replicas: Sequence[ReplicaTime]
    spent_usd: Mapping[str, Decimal]
    scaled: Sequence[tuple[float, str, int, str]]
    lasted_s: float
    events: int
    digest: str
    flags: Mapping[str, int] = field(default_factory=dict)
    changed: Sequence[tuple[float, str, str]] = ()
    series: Series | None = None

    def of(self, **wanted: str) -> "Outcome":
        """The same for some requests only, as `tenant="search"`."""
        keep = np.ones(len(self.columns["number"]), dtype=bool)
        for name, value in wanted.items():
            number = self.names.index(value) if value in self.names else -1
            keep &= self.columns[name] == number
        return self.where(keep)

    def where(self, keep: NDArray[np.bool_]) -> "Outcome":
        """The same for these requests only."""
        columns = {name: column[keep] for name, column in self.columns.items()}
        return replace(self, columns=columns)

    @property
    def requests(self) -> int:
        """All of them, however they ended."""
        return len(self.columns["number"])

    def count(self, end: End) -> int:
        """How many ended so."""
        return int((self.columns["end"] == end).sum())

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Whose answer is complete."""
        return np.asarray(self.columns["end"] == End.ANSWERED)

    def ttft_s(self) -> NDArray[np.float64]:
        """Time to the first token, of those answered."""
        some = self.answered
        return np.asarray((self.columns["first_ns"] - self.columns["at_ns"])[some] / NS)

    def e2e_s(self) -> NDArray[np.float64]:
        """Time to the last token, of those answered."""
        some = self.answered
        return np.asarray((self.columns["done_ns"] - self.columns["at_ns"])[some] / NS)

    def tpot_s(self) -> NDArray[np.float64]:
        """Mean time of a token after the first, of answers of two or more."""
        some = self.answered & (self.columns["said_tokens"] > 1)
        took = (self.columns["done_ns"] - self.columns["first_ns"])[some]
        return np.asarray(took / NS / (self.columns["said_tokens"][some] - 1))

    def gap_s(self) -> NDArray[np.float64]:
        """The longest wait between two tokens of each answer; 0 without `Serving.gaps`."""
        return np.asarray(self.columns["gap_ns"][self.answered] / NS)

    def met(self, ttft_s: float, tpot_s: float) -> NDArray[np.bool_]:
        """Of all requests, who was answered within both."""
        columns, said = self.columns, self.columns["said_tokens"]
        first = (columns["first_ns"] - columns["at_ns"]) <= ttft_s * NS
        rest = columns["done_ns"] - columns["first_ns"] <= tpot_s * NS * np.maximum(said - 1, 0)
        return np.asarray(self.answered & first & rest)

    @property
    def hit_rate(self) -> float:
        """Prompt tokens that a cache had, of all that were sent to replicas."""
        sent = self.columns["sent_ns"] >= 0
        prompts = int(self.columns["prompt_tokens"][sent].sum())
        return int(self.columns["cached_tokens"][sent].sum()) / prompts if prompts else 0.0

    @property
    def replica_hours(self) -> float:
        """Over all replicas, from asking for one to its end."""
        return sum(one.there_s for one in self.replicas) / 3600

    @property
    def usd(self) -> Decimal:
        """What the replicas cost."""
        return sum((one.usd for one in self.replicas), Decimal(0))


def percentile(values: NDArray[Any], share: float) -> float:
    """Nearest rank: a value that was there. NaN of none."""
    if not len(values):
        return float("nan")
    rank = max(0, int(np.ceil(share * len(values))) - 1)
    return float(np.partition(values, rank)[rank])
