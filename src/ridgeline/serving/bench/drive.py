"""Sends the requests of a run: at their scheduled times, or as workers come free.

    open loop    requests go out when their time comes, whatever the server does; a slow server
                 meets a growing queue, as it would with real users
    closed loop  each of C workers sends its next request when its last was answered; a slow
                 server is asked less

Called by `load`. `send` and `now` are arguments, so tests drive both loops in virtual time.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from ridgeline.serving.bench.sample import Answer, Sample
from ridgeline.serving.bench.strain import Strain, Watch
from ridgeline.workload import Request

Send = Callable[[int, Request, float], Awaitable[Answer]]
"""Sends request number `index`; its answer's times count from the given origin."""


@dataclass(frozen=True, slots=True)
class Loop:
    """How requests are sent. `workers` None: open loop.

    In a closed loop no request is started after `duration_s`; running ones are finished.
    """

    workers: int | None = None
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Driven:
    """What a run saw. `unfinished` requests were in flight when it was interrupted."""

    samples: tuple[Sample, ...]
    strain: Strain
    unfinished: int = 0
    interrupted: bool = False

    @property
    def duration_s(self) -> float:
        """From the run's beginning to its last answer."""
        return max((sample.answer.ended_s for sample in self.samples), default=0.0)


@dataclass(slots=True)
class Tally:
    """Collects samples as they come, and tells `seen` of each."""

    send: Send
    now: Callable[[], float]
    seen: Callable[[Sample], None]
    origin_s: float = 0.0
    started: int = 0
    samples: list[Sample] = field(default_factory=list)

    async def one(self, index: int, request: Request, scheduled_s: float) -> None:
        """Send one request and keep what came."""
        self.started += 1
        answer = await self.send(index, request, self.origin_s)
        sample = Sample(index, scheduled_s, request.prompt_tokens, request.output_tokens, answer)
        self.samples.append(sample)
        self.seen(sample)

    async def open_loop(self, requests: Iterable[Request]) -> None:
        """Each request at its time; none waits for another."""
        async with asyncio.TaskGroup() as group:
            for index, request in enumerate(requests):
                await self._wait_until(request.at_s)
                group.create_task(self.one(index, request, request.at_s))

    async def closed_loop(self, requests: Iterable[Request], loop: Loop) -> None:
        """`loop.workers` requests in flight at any time, until requests or time run out."""
        numbered = enumerate(requests)
        async with asyncio.TaskGroup() as group:
            for _ in range(loop.workers or 0):
                group.create_task(self._work(numbered, loop.duration_s))

    async def _work(
        self, numbered: Iterator[tuple[int, Request]], duration_s: float | None
    ) -> None:
        for index, request in numbered:
            free_s = self.now() - self.origin_s
            await self.one(index, request, free_s)
            if duration_s is not None and self.now() - self.origin_s >= duration_s:
                return

    async def _wait_until(self, at_s: float) -> None:
        delay_s = at_s - (self.now() - self.origin_s)
        if delay_s > 0:
            await asyncio.sleep(delay_s)


def ignore(_: Sample) -> None:
    """Tell nobody."""


async def drive(
    requests: Iterable[Request],
    send: Send,
    loop: Loop,
    *,
    stop: asyncio.Event | None = None,
    seen: Callable[[Sample], None] = ignore,
    now: Callable[[], float] = time.perf_counter,
) -> Driven:
    """Run all `requests` and return what was seen, in order of their numbers.

    `stop`, once set, ends the run early: requests in flight are cancelled and counted as
    unfinished. `seen` is told of every sample as it comes.
    """
    tally = Tally(send, now, seen)
    watch = Watch(now=now)
    watching = asyncio.create_task(watch.run())
    await asyncio.sleep(0)
    tally.origin_s = now()
    sending = asyncio.create_task(
        tally.open_loop(requests) if loop.workers is None else tally.closed_loop(requests, loop)
    )
    interrupted = await _finished_or_stopped(sending, stop or asyncio.Event())
    lags_s = [s.lag_s for s in tally.samples] if loop.workers is None else []
    strain = watch.strain(lags_s)
    await _cancel(watching)
    samples = tuple(sorted(tally.samples, key=lambda sample: sample.index))
    return Driven(samples, strain, tally.started - len(samples), interrupted)


async def _finished_or_stopped(sending: asyncio.Task[None], stop: asyncio.Event) -> bool:
    """Wait for the end; True where `stop` came first."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((sending, stopping), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
            return False
        return True
    finally:
        await _cancel(stopping)
        await _cancel(sending)


async def _cancel(task: asyncio.Task[object]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
