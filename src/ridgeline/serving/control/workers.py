"""The gateway as several processes on one address, kept alive.

The system hands each new connection to one of them (SO_REUSEPORT). They share limits and ledger
through the database, and learn of replicas from here. A worker that dies is started again with
the replicas of now; its clients see their connections break, its reservations are settled by the
others. `Workers` is to `platform.live` what a single `Gateway` is.
"""

import asyncio
import itertools
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from ridgeline.errors import LaunchError
from ridgeline.launch.calls import MOST_LINE_BYTES, Calls
from ridgeline.serving.control.scrapes import Scrapes
from ridgeline.serving.gateway.config import GatewayConfig, ModelSettings, ReplicaAddress
from ridgeline.serving.gateway.merged import merged_status
from ridgeline.serving.http_guard import http_url
from ridgeline.serving.policy.restart import restart
from ridgeline.serving.policy.split import Split

#: What starts a worker.
COMMAND = (sys.executable, "-m", "ridgeline", "gateway-worker")
#: How long a worker may take to import itself and listen.
START_S = 60.0
#: How long a worker that was told to close may take.
CLOSE_S = 10.0
#: How long a worker may take to answer. One that hangs must not hide what the others do.
ANSWER_S = 4.0


class Worker:
    """One process, from its first start until `close`."""

    def __init__(self, config: GatewayConfig, group: "Workers", log: Path) -> None:
        self.config = config
        self.log = log
        self.listens = asyncio.Event()
        self.calls: Calls | None = None
        self.pid = 0
        self._group = group
        self._process: asyncio.subprocess.Process | None = None
        self._closing = False

    async def run(self) -> None:
        """Until closed: start it, and again when it dies. LaunchError where it never listened."""
        deaths = 0
        ever = False
        while True:
            began_s = time.monotonic()
            await self._live()
            ever = ever or self.listens.is_set()
            self.listens.clear()
            if self._closing:
                return
            if not ever:
                raise LaunchError(
                    f"gateway worker {self.config.worker} ended before it listened",
                    where="gateway.workers",
                    remedy=f"its log says why: {self.log}",
                )
            decision = restart(deaths, time.monotonic() - began_s)
            deaths = decision.deaths
            await asyncio.sleep(decision.delay_s)

    async def ask(self, call: str, **values: Any) -> Any:
        """What the worker answers. Raises LaunchError where it is gone."""
        if self.calls is None:
            raise LaunchError(f"worker {self.config.worker} is not there", where="gateway.workers")
        return await self.calls.ask(call, **values)

    async def close(self) -> None:
        """End it; after `CLOSE_S` by force."""
        self._closing = True
        if self._process is None or self._process.returncode is not None:
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.ask("close")
                await self._process.wait()
        except (LaunchError, TimeoutError):
            self._process.kill()

    async def _live(self) -> None:
        """One life."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *COMMAND,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=MOST_LINE_BYTES,
                start_new_session=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self.calls = calls = Calls(process.stdout, process.stdin, self._group.handlers())
        hearing = asyncio.create_task(calls.run())
        try:
            async with asyncio.timeout(START_S):
                await calls.ask("make", config=msgspec.to_builtins(self.config, str_keys=True))
                for call, values in self._group.orders:
                    await calls.ask(call, **values)
                for address in self._group.addresses:
                    if address in self._group.addresses:  # still: one may have left meanwhile
                        await calls.ask("add", address=msgspec.to_builtins(address))
                await calls.ask("start")
            self.listens.set()
            await process.wait()
        except (LaunchError, TimeoutError):
            pass  # it died on its way; `run` decides what follows
        finally:
            self.calls = None
            if process.returncode is None:
                process.kill()
                await process.wait()
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)


class Workers:
    """`config.workers` gateways on one address; `start`, then `drain` and `close`."""

    def __init__(self, config: GatewayConfig, logs: Path) -> None:
        self.config = config
        self.url = ""
        #: What whoever starts the replicas shows of that, for `look`.
        self.control: Callable[[], Mapping[str, Any]] = dict
        self._logs = logs
        self._addresses: dict[str, ReplicaAddress] = {}
        self._starts_s: dict[str, float] = {}
        self._splits: dict[str, Any] = {}
        self._workers: list[Worker] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._held: socket.socket | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._scrapes = Scrapes()

    @property
    def addresses(self) -> list[ReplicaAddress]:
        """The replicas of now."""
        return list(self._addresses.values())

    @property
    def orders(self) -> list[tuple[str, dict[str, Any]]]:
        """What holds for models now, as calls that a worker is told first."""
        expects = [("expect", {"model": m, "start_s": s}) for m, s in self._starts_s.items()]
        return expects + [("split", {"model": m, "split": s}) for m, s in self._splits.items()]

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [worker.pid for worker in self._workers]

    async def start(self) -> str:
        """Start all, and give the base URL once all listen. Raises OSError, LaunchError."""
        # Held and never listened on: so the port stays ours, also where the system chose it.
        self._held = held = _reserved(self.config.host, self.config.port)
        port = held.getsockname()[1]
        for number in range(self.config.workers):
            config = replace(self.config, port=port, worker=f"{os.getpid()}-{number}")
            log = self._logs / f"gateway-{number}.log"
            self._workers.append(Worker(config, self, log))
        self._tasks = [asyncio.create_task(worker.run()) for worker in self._workers]
        listening = [asyncio.create_task(one.listens.wait()) for one in self._workers]
        try:
            await _all_or_first_error(listening, self._tasks)
        except BaseException:
            await self.close()
            raise
        self.url = http_url(self.config.host, port)
        return self.url

    def add_replica(self, address: ReplicaAddress) -> None:
        """A replica joins every worker."""
        self._addresses[address.id] = address
        self._tell("add", address=msgspec.to_builtins(address))

    async def until_ready(self, name: str, within_s: float) -> bool:
        """Wait until every worker sends requests there."""
        return all(
            await self._ask_all(within_s, "until_ready", name=name, within_s=within_s) or [False]
        )

    async def remove_replica(self, name: str, grace_s: float = 0.0) -> None:
        """A replica leaves every worker; what runs there gets `grace_s` first."""
        self._addresses.pop(name, None)
        await self._ask_all(grace_s, "remove", name=name, grace_s=grace_s)

    async def expect(self, model: str, start_s: float | None) -> None:
        """Requests for the model are held while none is ready: one comes in about `start_s`."""
        if start_s is None:
            self._starts_s.pop(model, None)
        else:
            self._starts_s[model] = start_s
        await self._ask_all(0, "expect", model=model, start_s=start_s)

    async def set_split(self, model: str, split: Split | None) -> None:
        """Which callers get which version of a model, from now on; what is seen begins anew."""
        told = split and msgspec.to_builtins(split)
        if told is None:
            self._splits.pop(model, None)
        else:
            self._splits[model] = told
        await self._ask_all(0, "split", model=model, split=told)

    async def set_models(self, models: Mapping[str, ModelSettings]) -> None:
        """From now on every worker routes, queues and charges by these settings."""
        self.config = replace(self.config, models=models)
        for worker in self._workers:  # for when it is started again
            worker.config = replace(worker.config, models=models)
        await self._ask_all(0, "models", models=msgspec.to_builtins(models, str_keys=True))

    async def drain(self, grace_s: float) -> bool:
        """Take no new request; whether the running ones ended within `grace_s`."""
        return all(await self._ask_all(grace_s, "drain", grace_s=grace_s))

    async def hang_up(self) -> None:
        """Leave every replica: answers that still run end with an error event."""
        await self._ask_all(0, "hang_up")

    async def close(self) -> None:
        """End every worker."""
        await asyncio.gather(*(worker.close() for worker in self._workers))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._held is not None:
            self._held.close()

    async def look(self) -> Mapping[str, Any]:
        """What all workers together show; `silent_workers` of them are there and do not answer."""
        there = sum(worker.calls is not None for worker in self._workers)
        answers = await self._statuses()
        return {**merged_status(answers), "silent_workers": max(0, there - len(answers))}

    def handlers(self) -> dict[str, Any]:
        """What a worker may ask: the state of all, since the system sent a reader to it alone."""

        async def statuses(_: Mapping[str, Any]) -> list[Any]:
            return await self._statuses()

        async def metrics(_: Mapping[str, Any]) -> dict[str, str]:
            texts = await asyncio.gather(
                *(_within(0, worker.ask("metrics")) for worker in self._workers),
                return_exceptions=True,
            )
            for one, text in zip(self._workers, texts, strict=True):
                said = text.encode() if isinstance(text, str) else None
                self._scrapes.heard(one.config.worker, one.pid, said)
            return {worker: text.decode() for worker, text in self._scrapes.texts().items()}

        return {"statuses": statuses, "metrics": metrics}

    async def _statuses(self) -> list[dict[str, Any]]:
        """Those of the workers, with what only we know."""
        control = self.control()
        return [{**one, "control": control} for one in await self._ask_all(0, "status")]

    def _tell(self, call: str, **values: Any) -> None:
        task = asyncio.create_task(self._ask_all_quietly(call, values))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _ask_all_quietly(self, call: str, values: dict[str, Any]) -> None:
        await self._ask_all(0, call, **values)

    async def _ask_all(self, work_s: float, call: str, **values: Any) -> list[Any]:
        """The answers of those workers that are there; who starts again later learns it then.

        `work_s` is what the call itself may take.
        """
        there = [one for one in self._workers if one.calls is not None]
        answers = await asyncio.gather(
            *(_within(work_s, one.ask(call, **values)) for one in there),
            return_exceptions=True,
        )
        return [answer for answer in answers if not isinstance(answer, BaseException)]


async def _within(work_s: float, answer: Awaitable[Any]) -> Any:
    """An answer. TimeoutError where the worker hangs."""
    async with asyncio.timeout(work_s + ANSWER_S):
        return await answer


def _reserved(host: str, port: int) -> socket.socket:
    """A socket bound to the address, which the workers share. Raises OSError where it is taken."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    _must_be_free(family, address)
    held = socket.socket(family, kind, protocol)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(address)
    return held


def _must_be_free(family: int, address: Any) -> None:
    """OSError where somebody listens there: with SO_REUSEPORT we would share it with them."""
    with socket.socket(family, socket.SOCK_STREAM) as alone:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind(address)


async def _all_or_first_error(
    wanted: list[asyncio.Task[Any]], running: list[asyncio.Task[None]]
) -> None:
    """Until all of `wanted` are done, or one of `running` ends (with an error)."""
    try:
        while any(not one.done() for one in wanted):
            done, _ = await asyncio.wait(
                list(itertools.chain(wanted, running)), return_when=asyncio.FIRST_COMPLETED
            )
            for task in running:
                if task in done:
                    task.result()
            wanted = [one for one in wanted if not one.done()]
    finally:
        for one in wanted:
            one.cancel()
