"""One of several gateway processes: it does what its parent says, and leaves when that is gone.

The parent is `control.workers`; `cli.gateway_worker` calls `work` and mounts the pages.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ridgeline.errors import SpecError
from ridgeline.launch.calls import Calls, Handler, with_parent
from ridgeline.serving.gateway.app import Gateway
from ridgeline.serving.gateway.config import GatewayConfig, ModelSettings, ReplicaAddress
from ridgeline.serving.gateway.merged import merged_status
from ridgeline.serving.gateway.metrics_merge import merge
from ridgeline.serving.policy.split import Split

#: How long the last words may take to reach clients.
_PARTING_S = 2.0

Mount = Callable[[Gateway, Callable[[], Awaitable[Mapping[str, Any]]]], None]


class Work:
    """The worker's side of the calls."""

    def __init__(self, mount: Mount) -> None:
        self._mount = mount
        self._gateway: Gateway | None = None
        self._calls: Calls | None = None
        self._closed = asyncio.Event()

    async def run(self) -> None:
        """Until told to close, or until the parent is gone."""
        self._calls = calls = await with_parent(self._handlers())
        hearing = asyncio.create_task(calls.run())
        closed = asyncio.create_task(self._closed.wait())
        await asyncio.wait([hearing, closed], return_when=asyncio.FIRST_COMPLETED)
        if self._gateway is not None:
            if not closed.done():  # the parent is gone: clients are told, and not just cut
                await self._gateway.hang_up()
                await self._gateway.drain(_PARTING_S)
            await self._gateway.close()
        for task in (hearing, closed):
            task.cancel()
        await asyncio.gather(hearing, closed, return_exceptions=True)

    @property
    def gateway(self) -> Gateway:
        """The gateway, once the parent has started it."""
        assert self._gateway is not None, "`make` is the parent's first call"
        return self._gateway

    def _handlers(self) -> dict[str, Handler]:
        return {
            "make": self._make,
            "start": self._start,
            "add": self._add,
            "until_ready": self._until_ready,
            "remove": self._remove,
            "expect": self._expect,
            "split": self._split,
            "models": self._models,
            "drain": self._drain,
            "hang_up": self._hang_up,
            "status": self._status,
            "metrics": self._metrics,
            "close": self._close,
        }

    async def _make(self, told: Mapping[str, Any]) -> None:
        """It learns of models and replicas before it listens: nobody hears that there are none."""
        config = msgspec.convert(told["config"], GatewayConfig, str_keys=True)
        self._gateway = gateway = Gateway(config, scrape=self._all_metrics)
        self._mount(gateway, self._whole_status)

    async def _start(self, _: Mapping[str, Any]) -> str:
        return await self.gateway.start()

    async def _add(self, told: Mapping[str, Any]) -> None:
        """A replica that came while this worker started is told twice; one of its id stays."""
        with suppress(SpecError):
            self.gateway.add_replica(msgspec.convert(told["address"], ReplicaAddress))

    async def _until_ready(self, told: Mapping[str, Any]) -> bool:
        return await self.gateway.until_ready(told["name"], told["within_s"])

    async def _remove(self, told: Mapping[str, Any]) -> None:
        await self.gateway.remove_replica(told["name"], told["grace_s"])

    async def _expect(self, told: Mapping[str, Any]) -> None:
        await self.gateway.expect(told["model"], told["start_s"])

    async def _split(self, told: Mapping[str, Any]) -> None:
        split = told["split"]
        await self.gateway.set_split(told["model"], split and msgspec.convert(split, Split))

    async def _models(self, told: Mapping[str, Any]) -> None:
        await self.gateway.set_models(msgspec.convert(told["models"], dict[str, ModelSettings]))

    async def _drain(self, told: Mapping[str, Any]) -> bool:
        return await self.gateway.drain(told["grace_s"])

    async def _hang_up(self, _: Mapping[str, Any]) -> None:
        await self.gateway.hang_up()

    async def _status(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**self.gateway.status(), "samples": self.gateway.samples()}

    async def _metrics(self, _: Mapping[str, Any]) -> str:
        return self.gateway.metrics_text().decode()

    async def _close(self, _: Mapping[str, Any]) -> None:
        self._closed.set()

    async def _whole_status(self) -> Mapping[str, Any]:
        """That of all workers: the system sent the reader to any one of them."""
        assert self._calls is not None
        return merged_status(await self._calls.ask("statuses"))

    async def _all_metrics(self) -> bytes:
        assert self._calls is not None
        texts = await self._calls.ask("metrics")
        return merge({worker: text.encode() for worker, text in texts.items()})


async def work(mount: Mount) -> None:
    """Serve as a worker. Standard output is the parent's: nothing else may be printed there."""
    await Work(mount).run()
