"""The replicas of one version of a model on this machine: as many as are wanted, none cut short.

`resize` says how many there should be and returns at once. A replica that is not wanted any more
leaves routing first, ends what it has, and only then stops; one that is wanted again meanwhile is a
new one. Whoever has not been ready yet goes first, then who came last.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Protocol

from ridgeline.serving.control.replicas import Listener, ManagedReplica, Startable
from ridgeline.serving.policy.restart import restart


class Routing(Protocol):
    """What has replicas leave before they stop: the gateway."""

    async def remove_replica(self, name: str, grace_s: float = 0.0) -> None:
        """No new request goes there; returns once nothing runs there, or after `grace_s`."""


class Deployment:
    """`resize`, `close`, and what there is. `launch(number)` tells how a replica is started.

    `is_ready(name)` says whether it takes requests. `failed` is called with the error of a replica
    that ended before it was ever ready; after a while its place is free again. A start may take
    `start_most_s`.
    """

    def __init__(
        self,
        launch: Callable[[int], Startable],
        listener: Listener,
        routing: Routing,
        *,
        is_ready: Callable[[str], bool],
        failed: Callable[[Exception], None],
        drain_s: float,
        start_most_s: float,
    ) -> None:
        self._launch = launch
        self._listener = listener
        self._routing = routing
        self._is_ready = is_ready
        self._failed = failed
        self._drain_s = drain_s
        self._start_most_s = start_most_s
        self._replicas: dict[int, ManagedReplica] = {}
        self._leaving: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._deaths = 0

    @property
    def size(self) -> int:
        """Replicas that serve or start; not those that leave."""
        return len(self._replicas) - len(self._leaving)

    @property
    def leaving(self) -> int:
        """Replicas that end what they have."""
        return len(self._leaving)

    def resize(self, wanted: int) -> None:
        """From now on there should be so many."""
        while self.size < wanted:
            self._start()
        staying = sorted(set(self._replicas) - self._leaving, key=self._worth)
        for number in staying[: max(0, self.size - wanted)]:
            self._leaving.add(number)
            self._go(self._leave(number))

    @property
    def staying(self) -> list[str]:
        """The names of those that do not leave."""
        return [one.name for number, one in self._replicas.items() if number not in self._leaving]

    async def end(self, name: str, reason: str) -> None:
        """End a replica's process at once; it is started again."""
        for replica in list(self._replicas.values()):
            if replica.name == name:
                await replica.end(reason)

    async def stop(self, grace_s: float, *, at_once: bool = False) -> None:
        """End every replica: what runs gets `grace_s`, or with `at_once` an error."""
        await asyncio.gather(
            *(replica.stop(grace_s, at_once=at_once) for replica in self._replicas.values())
        )

    async def gone(self) -> None:
        """Wait until no replica is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Nothing of it is left."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self) -> None:
        number = next(number for number in count() if number not in self._replicas)
        launch = self._launch(number)
        replica = ManagedReplica(launch, self._listener, self._start_most_s)
        self._replicas[number] = replica
        self._go(self._live(number, replica))

    async def _live(self, number: int, replica: ManagedReplica) -> None:
        began_s = time.monotonic()
        try:
            await replica.run()
            self._deaths = 0
            # It may have said where it listens after it had left.
            await self._routing.remove_replica(replica.name)
        except Exception as error:  # of its start: whatever it is, it would end so again
            decision = restart(self._deaths, time.monotonic() - began_s)
            self._deaths = decision.deaths
            self._failed(error)
            await self._listener.died(replica.name, f"{error}; {decision.reason}")
            await asyncio.sleep(decision.delay_s)  # its place is kept: nobody asks for another
        finally:
            if self._replicas.get(number) is replica:
                del self._replicas[number]
            self._leaving.discard(number)

    async def _leave(self, number: int) -> None:
        replica = self._replicas[number]
        await self._routing.remove_replica(replica.name, self._drain_s)
        await replica.stop(self._drain_s)

    def _worth(self, number: int) -> tuple[bool, int]:
        """What is lost when it goes; the least first."""
        return self._is_ready(self._replicas[number].name), -number

    def _go(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
