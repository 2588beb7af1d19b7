"""One model on fake replicas behind a gateway, scaled by the one rule or the other.

The gateway is in this process; each replica is a process of its own, started and stopped by the
very code of `ridgeline up`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from cp_rules import Rule
from cp_streams import Stream, play

from ridgeline.platform.managed import ManagedModel
from ridgeline.serving.gateway.app import Gateway
from ridgeline.serving.gateway.config import GatewayConfig, ModelSettings
from ridgeline.serving.spec import FakeEngine
from ridgeline.spec import parse
from ridgeline.store.database import open_store

_PATIENCE_S = 30.0
_SPEC = """
name: world
models:
  - name: m
    engine: {{kind: fake, {engine}}}
    replicas: {{{replicas}, scale: {{{scale}}}}}
    routing: {{policy: least-load}}
"""


class World:
    """What runs. To a rule it is what is scaled, so that it knows of each order (`sizes`)."""

    def __init__(
        self,
        gateway: Gateway,
        model: ManagedModel,
        session: aiohttp.ClientSession,
        scale: Callable[["World"], Coroutine[Any, Any, None]],
    ) -> None:
        self.gateway = gateway
        self.model = model
        #: What was ordered, and when.
        self.sizes: list[tuple[float, int]] = []
        self.streams: list[Stream] = []
        self._session = session
        self._scale = scale
        self.tasks: list[asyncio.Task[Any]] = []

    @property
    def size(self) -> int:
        return self.model.size

    def resize(self, wanted: int) -> None:
        self.sizes.append((time.monotonic(), wanted))
        self.model.resize(wanted)

    @property
    def ready(self) -> int:
        return sum(one["state"] == "ready" for one in self.gateway.status()["replicas"])

    def begin(self) -> None:
        """From now on the rule decides."""
        self.tasks.append(asyncio.create_task(self._scale(self)))

    def ask(self, tokens: int, *, n: int = 1) -> Stream:
        """A stream that runs from now on."""
        stream = Stream()
        self.streams.append(stream)
        playing = play(self._session, self.gateway.url, stream, tokens, n=n)
        self.tasks.append(asyncio.create_task(playing))
        return stream

    async def until(self, claim: Callable[[], object]) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                if claim():
                    return
                await asyncio.sleep(0.01)

    async def until_ended(self) -> list[str]:
        """How all streams ended."""
        await self.until(lambda: all(one.end for one in self.streams))
        return [one.end for one in self.streams]


class _Deaf:
    """Nobody draws what happens here (platform.managed.Heard)."""

    async def said(self, replica: str, event: Mapping[str, Any]) -> None: ...

    async def died(self, replica: str, reason: str) -> None: ...


@asynccontextmanager
async def world(
    rule: Rule, folder: Path, *, engine: str, replicas: str, scale: str, first: int
) -> AsyncIterator[World]:
    """A world with `first` replicas ready (0: none; whoever asks is held); see `World.begin`."""
    platform = parse(_SPEC.format(engine=engine, replicas=replicas, scale=scale), name="spec")
    spec = platform.models[0]
    assert isinstance(spec.engine, FakeEngine)
    folder = folder / rule.name
    folder.mkdir()
    url = f"sqlite:///{folder / 'ledger.db'}"
    settings = ModelSettings("least-load", slots=spec.replicas.slots or spec.engine.max_seqs)
    config = GatewayConfig(port=0, database=url, models={"m": settings}, probe_every_s=0.1)
    store = open_store(url)
    with rule.in_force():
        gateway = Gateway(config)
        await gateway.start()
        async with aiohttp.ClientSession() as session:
            failures: list[Exception] = []
            heard = _Deaf()
            model = ManagedModel(platform, spec, folder, heard, lambda: gateway, failures.append)
            made = World(gateway, model, session, lambda made: rule.scale(made, store))
            try:
                await gateway.expect("m", 5.0)
                model.resize(first)
                loaded = model.spec_version.id  # health pages say less, and a rule may believe them
                await made.until(lambda: made.ready == model.ready(loaded) == first)
                yield made
            finally:
                for task in made.tasks:
                    task.cancel()
                await asyncio.gather(*made.tasks, return_exceptions=True)
                await model.stop(5.0, at_once=True)
                await model.close()
                await gateway.close()
                store.dispose()
            assert failures == []
