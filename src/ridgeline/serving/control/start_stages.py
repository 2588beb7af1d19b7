"""A replica's start as a timeline: stage by stage, their sum beside the whole, and what to fix.

Pure: from the events that a replica said (`launch.start_clock.stage_event`, then "ready" with the
`start_s` that `control.replicas` measured from outside) to a `Timeline`. The stages are those of
`plan cold-start`, so that a start that was measured and one that was planned are told alike.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_INIT = (
    "init",
    "load weights while the process initialises, as reading ahead does; what is left of it only "
    "a replica more hides (replicas.scale.spare)",
)
_LOAD = ("load", "keep the weights one hop nearer: in memory, so with more of it")
#: By stage of a replica: the plan's stage that it belongs to, and the plan's fix as it is here.
FIXES = {
    "process": _INIT,
    "starting": _INIT,
    "import": _INIT,
    "weights": (
        "load",
        "keep the weights one hop nearer: converted, under a RIDGELINE_CACHE that stays",
    ),
    "load": _LOAD,
    "loading": _LOAD,
    "warm-up": ("warm_up", "keep compiled code between starts"),
    "front": _INIT,
}
#: A sum this near to the whole leaves nothing out that matters (ledger, S190).
WITHIN = 0.10


@dataclass(frozen=True, slots=True)
class Timeline:
    """One start. `whole_s` is what its parent measured, from before the process to "ready"."""

    stages_s: Mapping[str, float]
    whole_s: float

    @property
    def sum_s(self) -> float:
        """All stages together."""
        return sum(self.stages_s.values())

    @property
    def missing_s(self) -> float:
        """Of the whole, what no stage accounts for; negative where stages overlap."""
        return self.whole_s - self.sum_s

    @property
    def adds_up(self) -> bool:
        """Whether the sum is within 10 % of the whole."""
        return abs(self.missing_s) <= WITHIN * self.whole_s

    def planned_s(self) -> dict[str, float]:
        """The same by the plan's stages: init, load, warm_up. A stage nobody knows is its own."""
        found: dict[str, float] = {}
        for stage, spent_s in self.stages_s.items():
            name = FIXES[stage][0] if stage in FIXES else stage
            found[name] = found.get(name, 0.0) + spent_s
        return found


@dataclass(frozen=True, slots=True)
class Fix:
    """The stage to shorten first, the share of the start that it is, and how."""

    stage: str
    share: float
    how: str
    reason: str


def timeline(events: Iterable[Mapping[str, Any]]) -> Timeline | None:
    """The start that these events tell of; None where it has not come to "ready"."""
    for event in events:
        if event.get("event") == "ready":
            return Timeline(dict(event["stages_s"]), event["start_s"])
    return None


def under_way(events: Iterable[Mapping[str, Any]]) -> tuple[dict[str, float], str]:
    """Of a start that goes on: what the ended stages took, and which one it is in."""
    spent_s: dict[str, float] = {}
    stage = "process"
    for event in events:
        if event.get("event") != "stage":
            continue
        stage = event["stage"]
        if "ended" in event:
            spent_s[event["ended"]] = spent_s.get(event["ended"], 0.0) + event["spent_s"]
    return spent_s, stage


def fix(start: Timeline) -> Fix | None:
    """What to shorten first: the longest stage; None where no stage took any time."""
    if not start.sum_s > 0:
        return None
    stage, spent_s = max(start.stages_s.items(), key=lambda one: one[1])
    how = FIXES[stage][1] if stage in FIXES else "nothing is known that shortens it"
    share = spent_s / start.sum_s
    return Fix(stage, share, how, f"{stage} takes {spent_s:.2f} of {start.sum_s:.2f} s")
