"""The platform under attack: gateway workers and fake replicas, each a process of its own.

Workers are those of `ridgeline up` (`control.workers`), which starts one again when it dies; a
replica is `ridgeline fake-replica` with a durable usage log, and is started again here, with the
same log and port.
"""

import asyncio
import os
import select
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from aiohttp import ClientSession
from sqlalchemy import Engine
from sqlalchemy import select as rows_of

from ridgeline.serving.control import workers as control
from ridgeline.serving.control.workers import Workers
from ridgeline.serving.gateway.config import GatewayConfig, ModelSettings, ReplicaAddress
from ridgeline.serving.gateway.tenants import KeySpec, Tenants
from ridgeline.serving.policy.price import Price
from ridgeline.serving.tenant_spec import BudgetSpec, LimitsSpec, TenantSpec
from ridgeline.store.database import open_store, reading
from ridgeline.store.tables import reservations

WORKERS = 2
REPLICAS = 2
#: Requests at once, of each replica; a worker has its share of them.
SLOTS = 2
WEIGHTS = {"alpha": 1.0, "beta": 3.0}
_FAULTS = (
    "error,status=503,share=0.03",
    "error,status=500,share=0.01",
    "cut,after=3,share=0.02",
    "event,after=4,share=0.01",
)
_STEP_MS = 8
_READY_S = 60.0
_PRICE = Price(Decimal(1), Decimal("0.1"), Decimal(2))
_WORKER = Path(__file__).with_name("chaos_worker.py")


class Replica:
    """One fake replica's process, from `start` to `stop`; `kill` and it comes back."""

    def __init__(self, name: str, folder: Path, seed: int) -> None:
        self.name = name
        self.usage_log = folder / name
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.deaths = 0
        self._seed = seed
        self._log = folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Run, and wait until it listens."""
        options = ["--name", "m", "--port", str(self.port), "--usage-log", str(self.usage_log)]
        options += ["--step-ms", str(_STEP_MS), "--seed", str(self._seed), "--supervised"]
        for fault in _FAULTS:
            options += ["--fail", fault]
        with self._log.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ridgeline", "fake-replica", *options),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert process.stdout is not None
        async with asyncio.timeout(_READY_S):
            assert await process.stdout.readline(), f"{self.name} did not start: {self._log}"

    async def kill(self) -> None:
        """SIGKILL; returns once it is gone."""
        assert self._process is not None
        self.deaths += 1
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    async def stop(self) -> None:
        """For good."""
        if self._process is not None and self._process.returncode is None:
            await self.kill()


class Platform:
    """Everything that runs, and the eyes on it."""

    def __init__(self, store: Engine, workers: Workers, replicas: Sequence[Replica]) -> None:
        self.store = store
        self.workers = workers
        self.replicas = replicas
        self.keys: Mapping[str, str] = {}
        self.dead_pids: set[int] = set()

    def replica(self, name: str) -> Replica:
        return next(one for one in self.replicas if one.name == name)

    def lives(self, number: int) -> bool:
        """Whether this worker takes requests; its parent may not know yet that it was killed."""
        is_dead = self.workers.pids[number] in self.dead_pids
        return not is_dead and self.workers._workers[number].listens.is_set()

    def freeze(self, number: int, *, thaw: bool = False) -> None:
        """Stop a worker where it is, so that what is seen of it stays true; or let it go on."""
        os.kill(self.workers.pids[number], signal.SIGCONT if thaw else signal.SIGSTOP)

    def kill_worker(self, number: int) -> None:
        """SIGKILL; returns once it is gone. Its parent starts it again."""
        pid = self.workers.pids[number]
        self.dead_pids.add(pid)
        watch = os.pidfd_open(pid)  # its parent may reap it at any time
        try:
            signal.pidfd_send_signal(watch, signal.SIGKILL)
            gone, _, _ = select.select([watch], [], [], _READY_S)
            assert gone, f"worker {pid} does not die"
        finally:
            os.close(watch)

    def reservations(self, number: int | None = None) -> list[Any]:
        """Rows of open reservations: all, or those of a worker's lives so far."""
        wanted = rows_of(reservations)
        if number is not None:
            name = self.workers._workers[number].config.worker
            wanted = wanted.where(reservations.c.worker.startswith(f"{name}-", autoescape=True))
        with reading(self.store) as connection:
            return list(connection.execute(wanted))

    async def statuses(self) -> list[Any]:
        """What each worker shows."""
        found: list[Any] = await self.workers.handlers()["statuses"]({})
        return found

    async def replica_metrics(self) -> dict[str, str]:
        """What each replica tells Prometheus."""
        found = {}
        async with ClientSession() as session:
            for replica in self.replicas:
                async with session.get(f"{replica.url}/metrics") as answer:
                    found[replica.name] = await answer.text()
        return found


@asynccontextmanager
async def platform(
    folder: Path, url: str, seed: int, *, mutant: str = "none"
) -> AsyncIterator[Platform]:
    """A platform that is ready. `mutant` names what is missing in its gateways (chaos_worker)."""
    store = open_store(url)
    keys = _tenants(store)
    settings = ModelSettings(rule="prefix-sticky", slots=SLOTS, price=_PRICE)
    config = GatewayConfig(
        port=0, workers=WORKERS, database=url, admin_key="root", open=False, models={"m": settings}
    )
    replicas = [Replica(f"r{number}", folder, seed + number) for number in range(REPLICAS)]
    workers = Workers(config, folder / "workers")
    told = Platform(store, workers, replicas)
    told.keys = keys
    command, control.COMMAND = control.COMMAND, (sys.executable, str(_WORKER), mutant)
    try:
        await asyncio.gather(*(replica.start() for replica in replicas))
        for replica in replicas:
            workers.add_replica(ReplicaAddress(replica.name, replica.url, "m"))
        await workers.start()
        for replica in replicas:
            assert await workers.until_ready(replica.name, _READY_S), replica.name
        yield told
    finally:
        await workers.close()
        await asyncio.gather(*(replica.stop() for replica in replicas))
        control.COMMAND = command
        store.dispose()


def _tenants(store: Engine) -> dict[str, str]:
    """alpha and beta with a budget that nobody reaches, capped with limits; their keys."""
    budget = BudgetSpec(usd=Decimal(1000), per="month")
    limits = LimitsSpec(concurrent=3, output_tokens_per_minute=3000, requests_per_minute=120)
    specs = [
        TenantSpec(name=name, weight=weight, budget=budget) for name, weight in WEIGHTS.items()
    ]
    specs.append(
        TenantSpec.model_validate(
            {"name": "capped", "class": "interactive", "limits": limits, "budget": budget}
        )
    )
    tenants = Tenants(store)
    tenants.sync(specs)
    return {
        one.name: tenants.create_key(KeySpec(tenant=one.name, name="k"), actor="chaos").secret
        for one in specs
    }


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
