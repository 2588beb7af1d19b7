"""A replica as the gateway sees it, what a request wants of one, and a request on its way there."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol

from ridgeline.serving.gateway.config import ReplicaAddress
from ridgeline.serving.gateway.probe import Load
from ridgeline.serving.gateway.prompt_blocks import PromptBlocks
from ridgeline.serving.policy.health import Health, Sign
from ridgeline.serving.policy.route import Replica, Route, Sent

MOST_STAGES = 16


@dataclass(slots=True)
class LiveReplica:
    """One replica: its address, the policy's view of it, and what was learned.

    `names` maps a model as clients call it to what this replica calls it. `entries` are its
    model objects by the clients' name. `note` says why it is not ready, where we know better.
    """

    address: ReplicaAddress
    view: Replica
    health: Health = field(default_factory=Health)
    load: Load = field(default_factory=Load)
    names: dict[str, str] = field(default_factory=dict)
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    takes_usage_option: bool = True
    requests: int = 0
    failures: int = 0
    note: str = ""
    stages: dict[str, float] = field(default_factory=dict)
    stage_ns: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def at(self, stage: str, now_ns: int) -> None:
        """It is at this stage of its start; the time since the last look belongs to it."""
        if self.stage_ns:
            if stage not in self.stages and len(self.stages) >= MOST_STAGES:
                stage = "other"  # its own words are not bounded
            spent_s = (now_ns - self.stage_ns) / 1e9
            self.stages[stage] = self.stages.get(stage, 0.0) + spent_s
        self.stage_ns = now_ns

    @property
    def id(self) -> str:
        """Its name on this platform."""
        return self.address.id

    def took(self, uncached_tokens: int, prompt_tokens: int = 0) -> Sent:
        """A request was sent there; in the same breath as the decision."""
        self.requests += 1
        self.idle.clear()
        return self.view.dispatched(uncached_tokens, prompt_tokens)

    def gave_back(self, sent: Sent) -> None:
        """A request there has ended, however it did."""
        sent.finished()
        if not self.view.running:
            self.idle.set()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What routing has to know of a request. `blocks` are its prompt's.

    `input_tokens` is what the prompt has most likely, `most_input_tokens` what it may have.
    `caller` is who keeps the version of the model that it got before: a session or a user where
    the request names one, else nobody but this request.
    """

    model: str
    blocks: PromptBlocks
    input_tokens: int
    session: str = ""
    most_input_tokens: int = 0
    caller: str = ""


class Counting(Protocol):
    """Who counts what is at each replica: the fleet."""

    def prefilled(self, model: str, tokens: int, took_ns: int) -> None:
        """A prompt that had its replica for itself took so long to its first token."""

    def freed(self, replica: LiveReplica) -> None:
        """A request has left a replica."""

    def saw(self, replica: LiveReplica, sign: Sign) -> None:
        """A request met this on its way."""


@dataclass(slots=True)
class Dispatch:
    """A request on its way to the replica that was chosen; to be closed once it has ended.

    `detail` is the decision with all that it depended on, as JSON; `others` were there already.
    """

    fleet: Counting
    replica: LiveReplica
    route: Route
    sent: Sent
    detail: bytes
    began_ns: int
    others: int

    @property
    def warm_tokens(self) -> int:
        """What of the prompt is believed to be cached where it went."""
        return next(
            (s.warm_tokens for s in self.route.scores if s.replica == self.route.replica), 0
        )

    def first_token(self, model: str, now_ns: int) -> None:
        """Its prompt has been computed."""
        if self.sent.is_decoding:
            return
        self.sent.prefilled()
        if not self.others:
            self.fleet.prefilled(model, self.sent.uncached_tokens, now_ns - self.began_ns)

    def close(self) -> None:
        """It has ended there, however it did."""
        self.replica.gave_back(self.sent)
        self.fleet.freed(self.replica)
