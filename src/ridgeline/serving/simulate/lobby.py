"""Where a request waits before an engine's door: for its adapter, and for its cached beginning.

    add ─▶ [a slot for its adapter] ─▶ [its adapter is loaded] ─▶ [its beginning is loaded] ─▶ door

Others compute meanwhile. Nobody overtakes who waits for a slot, so that those whose adapter is
there cannot keep it from coming free; and whoever waits for a load holds no blocks, as whoever
waits in the batcher. What was on the device when a load began may be gone when it ends: then it is
computed again.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from ridgeline.physics.straight_steps import FS
from ridgeline.serving.policy.adapter_slots import AdapterSlots
from ridgeline.serving.policy.blocks import BlockBook
from ridgeline.serving.policy.tiers import Part, fetch
from ridgeline.serving.simulate.adapters import Adapters
from ridgeline.serving.simulate.pace import Pace
from ridgeline.serving.simulate.ranks import Kind, rank
from ridgeline.serving.simulate.tiers import Shelves, Tiers
from ridgeline.serving.simulate.work import Work
from ridgeline.timeline import NS, Timeline

#: What is told: what happened, to which request, and how.
Told = Callable[[str, str, str], None]


class Door(Protocol):
    """The engine behind the lobby."""

    pace: Pace

    def sync(self) -> None:
        """Bring it to the present."""

    def enter(self, work: Work) -> None:
        """A request has all that it needs."""


class Lobby:
    """`add`, `drop` and `gone`; `more_fs` is what adapters add to a step."""

    def __init__(
        self,
        door: Door,
        number: int,
        timeline: Timeline,
        book: BlockBook,
        told: Told,
        *,
        adapters: Adapters | None = None,
        tiers: Tiers | None = None,
        token_bytes: float = 0.0,
    ) -> None:
        self._door = door
        self._timeline = timeline
        self._rank = rank(Kind.STAGE, number)
        self._book = book
        self._told = told
        self._there: dict[str, Work] = {}
        self._adapters = adapters
        self._slots = AdapterSlots(adapters.slots) if adapters else None
        self._uses: dict[str, str] = {}  # who has a slot's adapter: in here, or in the engine
        self._line: dict[str, Work] = {}  # who waits for a slot
        self._ready_ns: dict[str, int] = {}  # when an adapter is or was loaded
        self._link_ns = 0
        self._tiers = tiers
        self._shelves: Shelves | None = None
        if tiers is not None:
            self._shelves = Shelves(tiers.order, token_bytes * book.block_size)
            book.on_evict = self._shelves.put
        self._closed = False
        self.loads = self.fetched_tokens = 0

    def __len__(self) -> int:
        """Who waits here."""
        return len(self._there)

    def __contains__(self, work_id: str) -> bool:
        """Whether somebody does."""
        return work_id in self._there

    def get(self, work_id: str) -> Work | None:
        """Somebody who waits here."""
        return self._there.get(work_id)

    @property
    def loaded(self) -> frozenset[str]:
        """The adapters that the engine holds."""
        return self._slots.loaded if self._slots is not None else frozenset()

    def add(self, work: Work) -> None:
        """A request has come."""
        self._there[work.id] = work
        if self._slots is None or not work.adapter:
            self._look_up(work)
        elif self._line or not self._seat(work, self._timeline.now_ns):
            self._line[work.id] = work

    def drop(self, work_id: str) -> None:
        """Nobody wants it any more."""
        del self._there[work_id]
        self._line.pop(work_id, None)
        self.gone(work_id)

    def gone(self, work_id: str) -> None:
        """A request is not in the engine any more: its adapter may have one user less."""
        adapter = self._uses.pop(work_id, None)
        if self._slots is None or self._closed:
            return
        if adapter is not None:
            self._slots.give(adapter)
        while self._line:
            work = next(iter(self._line.values()))
            if not self._seat(work, self._timeline.now_ns + 1):
                return
            del self._line[work.id]

    def close(self) -> None:
        """All is lost."""
        self._closed = True
        self._there.clear()
        self._line.clear()
        self._uses.clear()

    def check(self) -> None:
        """Assert that nobody waits here, and that nobody uses an adapter."""
        assert not self._there, f"{len(self._there)} wait"
        assert not self._uses, f"{len(self._uses)} use an adapter"
        if self._slots is not None and not self._closed:
            assert not self._slots.in_use, f"{self._slots.in_use} adapters are in use"

    def more_fs(self, ids: Iterable[str], pace: Pace) -> int:
        """What a step of these takes longer: each different adapter is read once."""
        if self._adapters is None:
            return 0
        different = {self._uses[one] for one in ids if one in self._uses}
        return pace.stretched_fs(round(self._adapters.read_s * FS)) * len(different)

    def _seat(self, work: Work, not_before_ns: int) -> bool:
        """Whether there is a slot for its adapter, loaded or to be loaded."""
        assert self._slots is not None, "an adapter has a slot"
        assert self._adapters is not None, "as it has a size"
        seat = self._slots.take(work.adapter)
        if seat.kind == "waits":
            return False
        self._uses[work.id] = work.adapter
        now_ns = self._timeline.now_ns
        if seat.kind == "loads":
            self._link_ns = max(now_ns, self._link_ns) + round(self._adapters.load_s * NS)
            self._ready_ns[work.adapter] = self._link_ns
            self.loads += 1
            self._told("loads", work.id, f"{work.adapter} {seat.reason}")
        at_ns = max(self._ready_ns[work.adapter], not_before_ns)
        if at_ns > now_ns:
            self._timeline.at(at_ns, self._rank, self._adapter_there, work)
        else:
            self._look_up(work)
        return True

    def _adapter_there(self, work: Work) -> None:
        if self._there.get(work.id) is work:
            self._look_up(work)

    def _look_up(self, work: Work) -> None:
        """Its beginning may be in a tier."""
        if self._shelves is not None and work.hashes and not work.brought:
            at_ns, blocks = self._fetch(work, self._shelves)
            if blocks:
                at_ns = max(at_ns, self._timeline.now_ns + 1)
                self._timeline.at(at_ns, self._rank, self._fetched, (work, blocks))
                return
        self._let_in(work)

    def _fetch(self, work: Work, shelves: Shelves) -> tuple[int, int]:
        """When its first so many blocks are there, if some are to be loaded; else 0 blocks."""
        assert self._tiers is not None, "shelves are of tiers"
        self._door.sync()
        usable = self._usable(work)
        first = self._book.cached(usable)
        groups = shelves.groups(usable[first:])
        if not groups:
            return 0, 0
        decided = fetch(self._parts(work, first, groups, shelves), self._tiers.rule)
        self._told("fetch", work.id, decided.reason)
        now_ns, end, blocks = self._timeline.now_ns, 0, 0
        for place, count in groups[: decided.parts]:
            hashes = usable[first : first + count]
            end = max(end, shelves.load(place, hashes, now_ns))
            first += count
            blocks = first
        return end, blocks

    def _parts(
        self, work: Work, first: int, groups: list[tuple[int, int]], shelves: Shelves
    ) -> list[Part]:
        now_ns, size, pace = self._timeline.now_ns, self._book.block_size, self._door.pace
        parts, asked = [], [0] * (1 + max(place for place, _ in groups))
        for place, count in groups:
            asked[place] += count
            load_ns = shelves.done_ns(place, asked[place], now_ns) - now_ns
            start, end = first * size, (first + count) * size
            whole_fs = pace.prompt_fs(start, work.prompt_tokens - start)
            rest_fs = pace.prompt_fs(end, work.prompt_tokens - end)
            parts.append(
                Part(shelves.name(place), end - start, load_ns / NS, (whole_fs - rest_fs) / FS)
            )
            first += count
        return parts

    def _fetched(self, what: tuple[Work, int]) -> None:
        work, blocks = what
        if self._there.get(work.id) is not work:
            return
        self._door.sync()
        restored = self._book.restore(self._usable(work)[:blocks])
        self.fetched_tokens += restored * self._book.block_size
        self._let_in(work)

    def _let_in(self, work: Work) -> None:
        del self._there[work.id]
        self._door.enter(work)

    def _usable(self, work: Work) -> list[bytes]:
        """The blocks that it can have from a cache: its last token is computed anyway."""
        return [*work.hashes[: (work.prompt_tokens - 1) // self._book.block_size]]
