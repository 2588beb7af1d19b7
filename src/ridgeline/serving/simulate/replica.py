"""One replica in virtual time: its engine, and the requests that are there or on their way.

It tells the gateway worker that sent a request what becomes of it, as an answer's stream does.
"""

from collections.abc import Callable, Sequence

from ridgeline.serving.policy.batch import Batcher, Limits
from ridgeline.serving.policy.blocks import BlockBook
from ridgeline.serving.policy.states import State
from ridgeline.serving.simulate.asked import Asked, End
from ridgeline.serving.simulate.chances import Chances
from ridgeline.serving.simulate.guesses import Speculator
from ridgeline.serving.simulate.lobby import Lobby
from ridgeline.serving.simulate.log import Log
from ridgeline.serving.simulate.pace import Pace, ns_after
from ridgeline.serving.simulate.ranks import Kind, rank
from ridgeline.serving.simulate.setup import Model, Role
from ridgeline.serving.simulate.transfer import Egress
from ridgeline.serving.simulate.virtual_engine import VirtualEngine
from ridgeline.serving.simulate.work import Work
from ridgeline.timeline import NS, Timeline

#: What is told of a request: that it has its first token, has ended, or is lost.
Told = Callable[[Asked], None]


class VirtualReplica:
    """`take` a request, `drop` one, `die`. `number` is its own among all that there ever were."""

    def __init__(
        self,
        number: int,
        name: str,
        model: Model,
        pace: Pace,
        timeline: Timeline,
        log: Log,
        *,
        took: Callable[["VirtualReplica"], None],
        prefilled: Told,
        ended: Told,
        lost: Told,
        hands_over: Told,
        chances: Chances | None = None,
        jumps: bool = True,
        gaps: bool = False,
    ) -> None:
        self.number = number
        self.name = name
        self.model = model
        self.state = State.STARTING
        self.began_ns = -1  # when it got its devices
        self.ready_ns = -1
        self.gone_ns = -1
        self.works_ns = 0  # what comes before that waits until then
        engine = model.engine
        book = BlockBook(engine.blocks, engine.block_tokens, caching=engine.prefix_caching)
        limits = Limits(min(engine.max_seqs, engine.max_batched_tokens), engine.max_batched_tokens)
        batcher = Batcher(limits, book)
        self.engine = VirtualEngine(
            timeline, number, batcher, pace, self, jumps=jumps, gaps=gaps, ahead=engine.ahead
        )
        self._timeline = timeline
        self._log = log
        if engine.guessing is not None:
            drawn = chances or Chances(0)
            self.engine.speculator = Speculator(engine.guessing, drawn, batcher, self._alarm)
        if engine.tiers is not None or engine.adapters is not None:
            self.engine.lobby = Lobby(
                self.engine, number, timeline, book, self._told, adapters=engine.adapters,
                tiers=engine.tiers, token_bytes=engine.machine.cache_bytes_per_token,
            )  # fmt: skip
        self._took, self._prefilled, self._ended, self._lost = took, prefilled, ended, lost
        self._hands_over = hands_over
        self._egress = Egress(model.link, engine.machine.cache_bytes_per_token)
        self._there: dict[str, Asked] = {}  # on their way, waiting or running
        self._arrive_ns = round(engine.arrive_s * NS)
        self._deliver_ns = round(engine.deliver_s * NS)

    @property
    def requests(self) -> int:
        """How many are there, or on their way."""
        return len(self._there)

    def take(self, asked: Asked, cache_ns: int = 0) -> None:
        """A request was sent here; it is complete when its cache is there, if it brings one."""
        self._there[asked.id] = asked
        self._took(self)
        at_ns = max(cache_ns, self._timeline.now_ns + self._arrive_ns, self.works_ns)
        if at_ns > self._timeline.now_ns:
            self._timeline.at(at_ns, rank(Kind.ARRIVAL, asked.number), self._arrive, asked)
        else:
            self._arrive(asked)

    def sends(self, asked: Asked) -> int:
        """Send its cache to where it is decoded; when that is there (ns)."""
        return self._egress.send(self._timeline.now_ns, asked.brought)

    def paced(self, pace: Pace) -> None:
        """From its next step on it is as fast as this."""
        self.engine.sync()
        self.engine.pace = pace

    def drop(self, asked: Asked) -> None:
        """Its client has left."""
        self.engine.sync()
        asked.said = self._said(asked)
        del self._there[asked.id]
        if asked.id in self.engine:
            self.engine.abort(asked.id)

    def die(self) -> None:
        """All that is here is lost."""
        self.engine.sync()
        lost = list(self._there.values())
        for asked in lost:
            asked.said = self._said(asked)
        self._there.clear()
        self.engine.die()
        for asked in lost:
            self._lost(asked)

    # What the engine tells.

    def admitted(self, work_id: str, cached_tokens: int) -> None:
        """It has a seat; what a preempted one finds again of its own is no cached prompt."""
        asked = self._there[work_id]
        if not asked.is_seated:
            asked.is_seated = True
            asked.cached_tokens = min(cached_tokens, asked.prompt_tokens)

    def first_token(self, work_id: str) -> None:
        """The prompt is computed."""
        asked = self._there[work_id]
        if not self._only_prefills(asked):
            self._begin(asked)
        self._prefilled(asked)

    def finished(self, work_id: str) -> None:
        """The answer is complete."""
        asked = self._there.pop(work_id)
        if self._only_prefills(asked):
            self._log.wrote(self._timeline.now_ns, "prefilled", work_id)
            asked.brought = asked.prompt_tokens + asked.said
            self._hands_over(asked)
            return
        asked.said, asked.end = asked.output_tokens, End.ANSWERED
        asked.gap_ns = ns_after(self.engine.gap_fs)
        asked.done_ns = self._timeline.now_ns + self._deliver_ns + asked.away_ns
        self._ended(asked)

    def _arrive(self, asked: Asked) -> None:
        if self._there.get(asked.id) is not asked:
            return  # its client, or this replica, is gone
        if asked.brought:  # and its first token with it
            asked.said += 1
            self._begin(asked)
            self._prefilled(asked)
        work = Work(
            asked.id,
            asked.prompt_tokens + asked.said,
            1 if self._only_prefills(asked) else asked.output_tokens - asked.said,
            self._hashes(asked.blocks),
            brought=asked.brought,
            adapter=asked.adapter,
            tenant=asked.tenant,
        )
        asked.brought = 0
        self.engine.add(work)

    @property
    def adapters(self) -> frozenset[str]:
        """Those that it has in memory."""
        lobby = self.engine.lobby
        return lobby.loaded if lobby is not None else frozenset()

    def _told(self, kind: str, work_id: str, said: str) -> None:
        self._log.wrote(self._timeline.now_ns, kind, work_id, self.name, said)

    def _alarm(self, why: str) -> None:
        self._log.wrote(self._timeline.now_ns, "alarm", self.name, why)

    def _begin(self, asked: Asked) -> None:
        """Its client gets the first token."""
        if asked.first_ns < 0:
            asked.first_ns = self._timeline.now_ns + self._deliver_ns + asked.away_ns
            self._log.wrote(self._timeline.now_ns, "first", asked.id, asked.cached_tokens)

    def _only_prefills(self, asked: Asked) -> bool:
        """Whether somebody else decodes it; of one token there is nothing to decode."""
        return self.model.role is Role.PREFILL and asked.output_tokens - asked.said > 1

    def _said(self, asked: Asked) -> int:
        if asked.id not in self.engine or self._only_prefills(asked):
            return asked.said
        return asked.output_tokens - self.engine.left(asked.id)

    def _hashes(self, blocks: Sequence[int]) -> Sequence[bytes]:
        return [block.to_bytes(16) for block in blocks]
