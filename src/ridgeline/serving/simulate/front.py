"""One worker of the gateway in virtual time: hold, queue, route, retry, as the live one does.

Every decision is the gateway's own code: the line (`policy.pool`), the rule (`policy.route`) with
its prefix index, what an end means (`policy.failures`). What the live shell does around them, with
futures and sockets, is done here with events.

    ask ─▶ held, while no replica is ready ─▶ line ─▶ route ─▶ replica ─▶ ended
"""

from collections.abc import Mapping, Sequence

from ridgeline.serving.policy.admit import Refuse
from ridgeline.serving.policy.fair import Pick
from ridgeline.serving.policy.phases import computed
from ridgeline.serving.policy.prefix import PrefixIndex
from ridgeline.serving.policy.route import RULES, NoRoute, Replica, Request, View, route
from ridgeline.serving.policy.split import Split, version_for
from ridgeline.serving.policy.states import State
from ridgeline.serving.policy.sticky import Saturation
from ridgeline.serving.policy.vtc import Entry
from ridgeline.serving.simulate.accounts import Accounts
from ridgeline.serving.simulate.asked import Asked, End
from ridgeline.serving.simulate.chances import Chances
from ridgeline.serving.simulate.lane import Lane
from ridgeline.serving.simulate.ranks import Kind, rank
from ridgeline.serving.simulate.replica import VirtualReplica
from ridgeline.serving.simulate.setup import Gateway, Model, Role
from ridgeline.timeline import NS, Timeline

_DRAWN = "front"


class Front:
    """`ask`, `ended`, `broke`, and replicas that come and go: those of its region."""

    def __init__(
        self,
        number: int,
        timeline: Timeline,
        gateway: Gateway,
        kinds: Mapping[str, Sequence[Model]],
        accounts: Accounts,
        chances: Chances,
        region: str = "",
    ) -> None:
        self.number = number
        self.region = region
        self.is_lost = False
        self._timeline = timeline
        self._gateway = gateway
        self._accounts = accounts
        self._chances = chances
        self._lanes = {name: Lane(some) for name, some in kinds.items()}
        for lane in self._lanes.values():
            lane.saturation = self._saturation(lane)
            apart = [kind.apart_tokens for kind in lane.kinds if kind.role is Role.PREFILL]
            lane.apart_tokens = min(apart) if apart else None
        blocks = max(kind.engine.blocks for some in kinds.values() for kind in some)
        self._index = PrefixIndex(blocks)

    def queued(self, model: str) -> int:
        """Requests that wait here before any replica."""
        lane = self._lanes[model]
        return lane.pool.queue.queued + len(lane.held)

    def held(self, model: str) -> int:
        """Those of them that wait for a replica to be ready."""
        return len(self._lanes[model].held)

    def load(self, model: str) -> tuple[int, int]:
        """Requests that wait here or were sent from here, and the slots for them."""
        lane = self._lanes[model]
        sent = sum(view.running for view in lane.views.values())
        return self.queued(model) + sent, lane.slots

    def set_split(self, model: str, split: Split | None) -> None:
        """From now on callers get versions of it by this split; None: whatever is ready."""
        self._lanes[model].split = split

    def lose(self) -> None:
        """The worker is gone, and who waits here is not answered."""
        self.is_lost = True
        for lane in self._lanes.values():
            for asked in [*lane.held, *lane.waiting.values()]:
                self.gives_up(asked, End.UNREADY, f"the region {self.region} was lost")

    def find(self) -> None:
        """It is back, and has forgotten who was asked for what."""
        self.is_lost = False

    def view(self, model: str, name: str) -> Replica | None:
        """What this worker knows of a replica."""
        return self._lanes[model].views.get(name)

    # Replicas come and go.

    def joined(self, replica: VirtualReplica) -> None:
        """A replica is there; it gets requests once it is `ready`."""
        lane = self._lanes[replica.model.served]
        lane.views[replica.name] = Replica(
            replica.name,
            models=frozenset({replica.model.served}),
            slots=replica.model.slots,
            reported_ns=self._timeline.now_ns,
        )
        lane.replicas[replica.name] = replica

    def is_now(self, replica: VirtualReplica, state: State) -> None:
        """Its state has changed."""
        lane = self._lanes[replica.model.served]
        view = lane.views[replica.name]
        was_ready, view.state = view.state is State.READY, state
        self._count(lane, replica, (state is State.READY) - was_ready)
        if state is State.READY:
            self._index.remove(replica.name)
            self._index.resize(replica.name, replica.model.engine.blocks)
            held, lane.held = lane.held, []
            for asked in held:
                self._enter(lane, asked)
            self._changed(lane)

    def left(self, replica: VirtualReplica) -> None:
        """A replica is gone for good."""
        lane = self._lanes[replica.model.served]
        if lane.views[replica.name].state is State.READY:
            self._count(lane, replica, -1)
        del lane.views[replica.name], lane.replicas[replica.name]
        self._index.remove(replica.name)

    def _count(self, lane: Lane, replica: VirtualReplica, more: int) -> None:
        """Those that only prefill answer nobody: what they can take at once is no slot."""
        if replica.model.role is Role.PREFILL:
            lane.prefilling += more
        else:
            lane.ready += more
            lane.slots += more * self._share(replica.model.slots)

    def reported(self, replica: VirtualReplica, requests: int, kv_usage: float) -> None:
        """A replica has said what is there; what others sent is what we did not."""
        view = self._lanes[replica.model.served].views[replica.name]
        view.others = max(0, requests - view.running)
        view.kv_usage = kv_usage
        view.waiting = replica.engine.waiting
        view.adapters = replica.adapters
        view.reported_ns = self._timeline.now_ns

    # A request comes, waits, is sent, and ends.

    def ask(self, asked: Asked, *, may_come: bool) -> None:
        """A request has come; `may_come`: a replica of its model is there or will be."""
        asked.worker = self.number
        lane, now_ns = self._lanes[asked.model], self._timeline.now_ns
        if self.is_lost:
            self._refused(asked, End.UNREADY, f"the region {self.region} is lost")
            return
        longest = lane.context_tokens
        if asked.prompt_tokens + asked.output_tokens > longest:
            self._refused(asked, End.TOO_LONG, f"longer than the context of {longest} tokens")
            return
        if refusal := self._accounts.reserve(asked, now_ns):
            asked.retry_after_s = getattr(refusal, "retry_after_s", 0.0)
            self._refused(asked, End.REFUSED, refusal.reason)
            return
        if lane.ready:
            self._enter(lane, asked)
        elif not may_come or len(lane.held) >= self._gateway.most_held:
            self._turned_away(asked, End.UNREADY, "no replica is ready")
        else:
            self._hold(lane, asked)

    def gives_up(self, asked: Asked, why: End, reason: str) -> None:
        """Whoever waits here waits no longer."""
        lane = self._lanes[asked.model]
        if asked in lane.held:
            lane.held.remove(asked)
        elif lane.waiting.pop(asked.id, None) is not None:
            lane.pool.leave(asked.id)
            self._changed(lane)
        self._turned_away(asked, why, reason)

    def prefilled(self, asked: Asked) -> None:
        """Its first token is there."""
        assert asked.sent is not None, "sent"
        tokens = asked.sent.uncached_tokens
        asked.sent.prefilled()
        if tokens and not asked.others:
            lane, took_ns = self._lanes[asked.model], self._timeline.now_ns - asked.sent_ns
            peak = lane.peak.saw(tokens, took_ns)
            if peak is not lane.peak:
                lane.peak = peak
                lane.saturation = self._saturation(lane)

    def ended(self, asked: Asked, said_tokens: int) -> None:
        """Its answer has come to its end, or nobody wants the rest."""
        lane, now_ns = self._lanes[asked.model], self._timeline.now_ns
        assert asked.sent is not None, "sent"
        queue = lane.pool.queue
        queue.corrected(asked.id, max(0, asked.prompt_tokens - asked.cached_tokens))
        queue.said(asked.id, said_tokens)
        lane.pool.end(asked.id, now_ns)
        asked.sent.finished()
        self._accounts.settle(asked, said_tokens, now_ns)
        self._changed(lane)

    def broke(self, asked: Asked) -> bool:
        """The replica that had it is gone; whether another one goes on with it."""
        lane = self._lanes[asked.model]
        assert asked.sent is not None, "sent"
        asked.sent.finished()
        asked.tried |= {asked.replica}
        goes_on = not self.is_lost and (asked.said == 0 or lane.resumes)
        budget = lane.retries.spend() if asked.tries <= self._gateway.retries else None
        if goes_on and budget is not None:
            lane.retries = budget
            if self._send(lane, asked):
                return True
        lane.pool.queue.said(asked.id, asked.said)
        lane.pool.end(asked.id, self._timeline.now_ns)
        if asked.said:
            self._accounts.settle(asked, asked.said, self._timeline.now_ns)
        else:
            self._accounts.release(asked, self._timeline.now_ns)
        self._changed(lane)
        return False

    def _hold(self, lane: Lane, asked: Asked) -> None:
        lane.held.append(asked)
        longest_s = self._gateway.hold_s + lane.held_s
        self._later(longest_s, asked, End.UNREADY, f"no replica became ready in {longest_s:g} s")

    def _enter(self, lane: Lane, asked: Asked) -> None:
        tenant, now_ns = self._accounts.tenant(asked.tenant), self._timeline.now_ns
        warm = 0
        if asked.blocks:
            warm = max(self._warm(lane, asked).values(), default=0)
        entry = Entry(
            asked.id,
            asked.model,
            asked.tenant if self._gateway.fair else "",
            tenant.priority_class,
            max(1, asked.prompt_tokens - warm),
            asked.output_tokens,
            tenant.weight,
        )
        asked.entered_ns = now_ns
        verdict = lane.pool.enter(entry, lane.slots, now_ns)
        if isinstance(verdict, Refuse):
            asked.retry_after_s = verdict.retry_after_s
            self._turned_away(asked, End.REFUSED, verdict.reason)
            return
        lane.waiting[asked.id] = asked
        self._changed(lane)
        if asked.id in lane.waiting:
            patience_s = lane.pool.queue.lane(entry).spec.patience_s
            why = f"no slot came free for it in {patience_s:g} s"
            self._later(patience_s, asked, End.REFUSED, why)

    def _changed(self, lane: Lane) -> None:
        """Slots may be free: give them to who is next."""
        while lane.waiting and not self.is_lost:
            pick = lane.pool.pick(lane.slots, self._timeline.now_ns)
            if not isinstance(pick, Pick):
                return
            asked = lane.waiting.pop(pick.entry.request_id)
            lane.retries = lane.retries.earn()
            if not self._send(lane, asked):
                lane.pool.end(asked.id, self._timeline.now_ns)
                self._turned_away(asked, End.UNREADY, "no replica is ready any more")

    def _send(self, lane: Lane, asked: Asked) -> bool:
        """Choose its replica and send it there; whether there is one."""
        now_ns, blocks = self._timeline.now_ns, self._prompt_blocks(lane, asked)
        warm = self._warm(lane, asked) if blocks else {}
        rule, known = lane.model.rule, self._candidates(lane, asked, warm)
        draws = RULES[rule].draws
        request = Request(
            asked.model,
            asked.tried,
            asked.prompt_tokens,
            warm,
            bool(blocks) and self._index.continues(blocks),
            asked.session,
            asked.adapter or None,
            chance=self._chances.bits(_DRAWN, asked.number, asked.tries) if draws else 0,
        )
        answer = route(View(rule, request, known, lane.last, now_ns, lane.saturation))
        if isinstance(answer, NoRoute):
            return False
        lane.last = answer.replica
        self._index.record(answer.replica, blocks)
        view = lane.views[answer.replica]
        asked.others = view.running
        asked.sent = view.dispatched(answer.uncached_tokens, asked.prompt_tokens)
        asked.sent_ns, asked.replica = now_ns, answer.replica
        asked.tries += 1
        asked.brought = 0
        asked.is_seated = False
        lane.replicas[answer.replica].take(asked)
        return True

    def hand_over(self, asked: Asked) -> VirtualReplica | None:
        """Its prompt is computed: who decodes it; None where nobody can."""
        lane = self._lanes[asked.model]
        assert asked.sent is not None, "sent"
        asked.sent.finished()
        known = self._of_role(lane, {Role.DECODE, Role.BOTH})
        request = Request(asked.model, asked.tried)
        answer = route(View("least-load", request, known, lane.last_decode, self._timeline.now_ns))
        if isinstance(answer, NoRoute):
            return None
        lane.last_decode = asked.replica = answer.replica
        asked.sent = lane.views[answer.replica].dispatched()
        self._index.record(answer.replica, self._prompt_blocks(lane, asked))
        return lane.replicas[answer.replica]

    def _of_role(self, lane: Lane, roles: set[Role]) -> list[Replica]:
        having = (name for name, one in lane.replicas.items() if one.model.role in roles)
        return [lane.views[name] for name in having]

    def _candidates(self, lane: Lane, asked: Asked, warm: Mapping[str, int]) -> list[Replica]:
        """Who may compute its prompt: those that prefill, where it is worth the way.

        Of a model with two versions those of the caller's, or all where none of them is left.
        """
        if lane.apart_tokens is not None:
            uncached = asked.prompt_tokens - max(warm.values(), default=0)
            where = computed(uncached, lane.apart_tokens, is_ready=lane.prefilling > 0)
            return self._of_role(lane, {Role.PREFILL} if where.apart else {Role.DECODE, Role.BOTH})
        every = list(lane.views.values())
        if lane.split is None:
            return every
        version = version_for(lane.split, asked.session or asked.id)
        of_it = (name for name, one in lane.replicas.items() if one.model.name == version)
        having = [lane.views[name] for name in of_it]
        left = (view for view in having if view.id not in asked.tried)
        return having if any(view.state is State.READY for view in left) else every

    def _prompt_blocks(self, lane: Lane, asked: Asked) -> Sequence[int]:
        return asked.blocks[: asked.prompt_tokens // lane.model.engine.block_tokens]

    def _warm(self, lane: Lane, asked: Asked) -> dict[str, int]:
        length = max(asked.prompt_tokens / lane.model.engine.block_tokens, 1.0)
        blocks = self._prompt_blocks(lane, asked)
        return self._index.warm_tokens(blocks, asked.prompt_tokens, length)

    def _share(self, slots: int) -> int:
        return max(1, -(-slots // self._gateway.workers))

    def _saturation(self, lane: Lane) -> Saturation:
        wait_s, workers = lane.model.wait_s, self._gateway.workers
        source = f"{lane.peak.source} for {wait_s:g} s, of {workers} workers"
        return Saturation(lane.peak.tokens_per_s * wait_s / workers, source)

    def _later(self, after_s: float, asked: Asked, why: End, reason: str) -> None:
        """It waits for so long at most."""

        def expire(_: None) -> None:
            lane = self._lanes[asked.model]
            # Not its id: that is also the next attempt's, if its client asks again.
            if lane.waiting.get(asked.id) is asked or asked in lane.held:
                self.gives_up(asked, why, reason)

        at_ns = self._timeline.now_ns + round(after_s * NS)
        self._timeline.at(at_ns, rank(Kind.EXPIRY, asked.number), expire)

    def _turned_away(self, asked: Asked, end: End, reason: str) -> None:
        """It had a reservation, and used nothing."""
        self._accounts.release(asked, self._timeline.now_ns)
        self._refused(asked, end, reason)

    def _refused(self, asked: Asked, end: End, reason: str) -> None:
        asked.end, asked.reason = end, reason
        asked.done_ns = self._timeline.now_ns
        asked.client.ended(asked)
