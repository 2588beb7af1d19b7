"""kill -9 where it hurts the control plane, while requests run; then what must be true again.

Each attack makes the situation that it needs by the load alone (more clients: replicas load; fewer:
one drains), kills, and waits until there are as many replicas as the demand wants.
"""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

from cp_up import Up
from psutil import Process

MOST = 3
SPEC = """
models:
  - name: m
    engine: {{kind: fake, step: 10ms, max_seqs: 16, loading: 1s}}
    replicas:
      min: 1
      max: 3
      scale: {{target_per_replica: 2, up: {{by: 3, every: 4s}}, down: {{stabilise: 2s}}}}
    routing: {{policy: least-load}}
gateway: {{listen: "127.0.0.1:0", workers: {workers}}}
"""
#: An answer of a client that goes on and on, and one that lasts while a replica drains.
_SHORT, _LONG = 40, 700
#: How soon nothing may be left of a platform that was killed.
GONE_S = 5.0


class Attack:
    """The load and the kills on one platform. What was killed is in `kills`."""

    def __init__(self, it: Up, seed: int) -> None:
        self.it = it
        self.kills: list[str] = []
        self._clients = 0
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._random = Random(seed)

    def clients(self, count: int) -> None:
        """From now on so many ask again and again; who is too many ends its request first."""
        self._clients = count
        for number in range(count):
            if number not in self._asking or self._asking[number].done():
                self._asking[number] = self.it.keep(self._client(number))

    async def _client(self, number: int) -> None:
        while number < self._clients:
            stream = self.it.ask(_SHORT + self._random.randrange(_SHORT))
            await self.it.until(lambda asked=stream: asked.end)
            if stream.end != "done":
                await asyncio.sleep(0.1)  # nobody knocks at a closed door without a pause

    async def loading(self) -> None:
        """A replica that is not ready yet, while others serve."""
        self.clients(2)
        await self.it.until_ready(1)
        self.clients(2 * MOST)
        self._kill("loading", await self._victim("starting", "loading"))
        await self.it.until_ready(MOST)

    async def draining(self) -> None:
        """A replica that ends what it has; its stream goes on elsewhere, or is told."""
        while True:
            self.clients(2 * MOST)
            await self.it.until_ready(MOST)
            self.clients(0)
            await self.it.until_ended()
            for _ in range(MOST):  # one for each, of which two replicas are enough for all
                self.it.ask(_LONG)
            await self.it.until_states(lambda seen: "draining" in seen.values() or len(seen) < MOST)
            busy = [
                one["id"]
                for one in await self._replicas()
                if one["state"] == "draining" and one["in_flight"]
            ]
            process = self.it.process_of(busy[0]) if busy else None
            if process is not None:
                break
            await self.it.until_ended()
        self._kill("draining", process)
        await self.it.until_ready(MOST - 1)

    async def ready(self) -> None:
        """A replica that serves."""
        self.clients(2 * MOST)
        await self.it.until_ready(MOST)
        self._kill("ready", await self._victim("ready"))
        await self.it.until_ready(MOST)

    async def worker(self) -> None:
        """One of the gateway's processes."""
        self.clients(2 * MOST)
        await self.it.until_ready(MOST)
        workers = [one for one in self.it.look_around() if "gateway-worker" in one.cmdline()]
        self._kill("worker", self._random.choice(workers))
        await self.it.until_ready(MOST)

    async def controller(self) -> None:
        """`ridgeline up` itself: everything goes with it, and comes back with the next one."""
        self.clients(2 * MOST)
        await self.it.until_ready(MOST)
        await self.it.kill()
        self.kills.append("controller")
        assert await self.it.left_over(GONE_S) == []
        await self.it.start()
        await self.it.until_ready(MOST)

    async def end(self) -> None:
        """No more load; as many replicas as that needs, and everything settled."""
        self.clients(0)
        await self.it.until_ended()
        await self.it.until_ready(1)
        await self.it.until(lambda: not self.it.reserved())
        there = {one.pid for one in self.it.look_around()}
        gone = [one for pid, one in self.it.seen.items() if pid not in there]
        assert [one for one in gone if one.is_running()] == []

    def verdict(self) -> Mapping[str, int]:
        """How many streams ended in each way that they may not; empty where all did well."""
        allowed = {"done", "error event", "refused 503", "refused 429"}
        if {"controller", "worker"} & set(self.kills):
            allowed.add("broken")
        ends = [one.end for one in self.it.streams]
        return {end: ends.count(end) for end in sorted(set(ends) - allowed)}

    async def _replicas(self) -> list[dict[str, Any]]:
        return list((await self.it.status()).get("replicas", []))

    async def _victim(self, *states: str) -> Process:
        """The process of a replica that is in one of these states."""
        while True:
            found = await self.it.until_states(lambda seen: set(seen.values()) & set(states))
            for name, state in found.items():
                process = self.it.process_of(name) if state in states else None
                if process is not None:
                    return process

    def _kill(self, what: str, victim: Process) -> None:
        victim.kill()
        self.kills.append(what)
