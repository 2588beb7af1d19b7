"""Settles requests of which the gateway does not know what they used, by asking the replicas.

Every worker runs one: for its own requests that ended badly (a client that left, a replica that
died), and for those of workers that are gone. A replica's durable usage log knows; `policy.recover`
says what follows from it. Two workers may work on the same request, the ledger settles it once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import aiohttp
import msgspec

from ridgeline.errors import StoreError
from ridgeline.serving.gateway.ledger import Ledger
from ridgeline.serving.gateway.ledger_rows import Actual, Attempt, Reservation, attempts_of
from ridgeline.serving.policy.recover import (
    Found,
    Logged,
    Lost,
    Missing,
    Patience,
    Wait,
    conclude,
)
from ridgeline.serving.usage_log import Usage

_LOG = logging.getLogger(__name__)
_MOST_AT_ONCE = 32
_ANSWER_S = 5.0


class Source(NamedTuple):
    """A replica that may be asked: its id, its root address and what to send along."""

    replica: str
    url: str
    headers: dict[str, str]


#: The replicas that a model has, or had lately.
SourcesOf = Callable[[str], Sequence[Source]]
#: What the log of a replica that cannot be asked has of an attempt, by the replica's id.
Past = Callable[[str, str], Usage | None]
#: Status and body of a GET; OSError or TimeoutError where there is no answer.
Get = Callable[[str, dict[str, str]], Awaitable[tuple[int, bytes]]]


class Recovery:
    """Rounds of asking, until every request that ended is settled.

    A request may have had `most_attempts`, some of them since what was noted last.
    """

    def __init__(
        self,
        ledger: Ledger,
        sources_of: SourcesOf,
        get: Get,
        *,
        past: Past = lambda *_: None,
        most_attempts: int = 3,
        every_s: float = 1.0,
        patience: Patience | None = None,
    ) -> None:
        self._ledger = ledger
        self._sources_of = sources_of
        self._get = get
        self._past = past
        self._most_attempts = most_attempts
        self._every_s = every_s
        self._patience = patience or Patience()
        self._slots = asyncio.Semaphore(_MOST_AT_ONCE)
        #: When we first asked for each request: before that no replica could have answered us.
        self._asked_ns: dict[str, int] = {}
        #: Replicas that did not answer in this round: nobody waits for them a second time.
        self._silent: set[str] = set()
        #: Called with the basis of each entry that was written afterwards.
        self.on_settled: Callable[[str], None] = lambda _: None

    async def run(self) -> None:
        """Rounds for ever; a database that fails is tried again."""
        while True:
            try:
                await self.round()
            except StoreError as error:
                _LOG.error("requests that ended badly are not settled yet: %s", error)
            await asyncio.sleep(self._every_s)

    async def round(self) -> int:
        """Settle what can be; how many are still open."""
        self._silent.clear()
        rows = await self._ledger.orphans()
        open_now = {row.request_id for row in rows}
        self._asked_ns = {one: at for one, at in self._asked_ns.items() if one in open_now}
        settled = await asyncio.gather(*(self._settle(row) for row in rows))
        return settled.count(False)

    async def _settle(self, row: Reservation) -> bool:
        async with self._slots:
            attempts = await self._attempts(row)
        assert row.ended_ns is not None, row
        now_ns = self._ledger.clock()
        since_ns = max(row.ended_ns, self._asked_ns.setdefault(row.request_id, now_ns))
        asked_s = (now_ns - since_ns) / 1e9
        lost = Lost(attempts, row.streamed_tokens, row.input_tokens, asked_s)
        conclusion = conclude(lost, self._patience)
        if isinstance(conclusion, Wait):
            return False
        actual = _actual(row, conclusion) if isinstance(conclusion, Found) else None
        try:
            entry = await self._ledger.recover(row, actual)
        except StoreError:  # it was logged; the next round tries again
            return False
        if entry is not None and actual is not None:
            self.on_settled(actual.basis)
        _LOG.info("settled %s afterwards: %s", row.request_id, conclusion.reason)
        return True

    async def _attempts(self, row: Reservation) -> list[Logged | Missing]:
        """What is known of each attempt that was noted, and of those that may not have been."""
        sources = self._sources_of(row.model)
        noted = attempts_of(row.attempts)
        asks = [
            self._ask_its(
                attempt, [source for source in sources if source.replica == attempt.replica]
            )
            for attempt in noted
        ]
        names = [
            f"{row.request_id}~{number}"
            for number in range(len(noted) + 1, self._most_attempts + 1)
        ]
        if not noted:
            names[0] = row.request_id
        answers = await asyncio.gather(*asks, *(self._ask(name, sources) for name in names))
        known, late = answers[: len(noted)], answers[len(noted) :]
        # A dispatch is noted within a second; one that was not is believed where a log has it.
        logged = [answer for answer in late if isinstance(answer, Logged)]
        if known or logged:
            return [*known, *logged]
        return [Missing.SILENT if Missing.SILENT in late else Missing.UNKNOWN]

    async def _ask_its(self, attempt: Attempt, sources: Sequence[Source]) -> Logged | Missing:
        """What is known of a noted attempt; of a replica that is not there its log may be."""
        answer = await self._ask(attempt.id, sources)
        if answer is Missing.SILENT:
            usage = await asyncio.to_thread(self._past, attempt.replica, attempt.id)
            if usage is not None:
                return _logged(attempt.replica, usage)
        return answer

    async def _ask(self, attempt_id: str, sources: Sequence[Source]) -> Logged | Missing:
        """What these replicas know of an attempt; one that is gone for good is silent."""
        answers = await asyncio.gather(*(self._ask_one(attempt_id, source) for source in sources))
        for answer in answers:
            if isinstance(answer, Logged):
                return answer
        is_unknown = answers and Missing.SILENT not in answers
        return Missing.UNKNOWN if is_unknown else Missing.SILENT

    async def _ask_one(self, attempt_id: str, source: Source) -> Logged | Missing:
        if source.replica in self._silent:
            return Missing.SILENT
        try:
            async with asyncio.timeout(_ANSWER_S):
                status, body = await self._get(f"{source.url}/usage/{attempt_id}", source.headers)
        except (OSError, TimeoutError):
            self._silent.add(source.replica)
            return Missing.SILENT
        if status == 404:
            return Missing.UNKNOWN
        try:
            usage = msgspec.json.decode(body, type=Usage) if status == 200 else None
        except msgspec.DecodeError:
            usage = None
        if usage is None:
            return Missing.SILENT
        return _logged(source.replica, usage)


def _logged(replica: str, usage: Usage) -> Logged:
    return Logged(
        replica,
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.completion_tokens,
        usage.finished,
    )


def getter(session: aiohttp.ClientSession) -> Get:
    """GETs over a session."""

    async def get(url: str, headers: dict[str, str]) -> tuple[int, bytes]:
        try:
            async with session.get(url, headers=headers) as answer:
                return answer.status, await answer.read()
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error)) from error

    return get


def _actual(row: Reservation, found: Found) -> Actual:
    return Actual(
        found.replica or row.replica,
        row.status,
        found.input_tokens,
        found.cached_tokens,
        found.output_tokens,
        found.basis,
    )
