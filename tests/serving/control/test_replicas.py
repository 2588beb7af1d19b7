import asyncio
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ridgeline.errors import LaunchError, ModelError
from ridgeline.launch.local import Child
from ridgeline.serving.control import replicas
from ridgeline.serving.control.replicas import ManagedReplica
from ridgeline.serving.policy.restart import Restart

SERVES = """
import sys
from ridgeline.launch.local import announce
announce({"event": "listening", "url": "http://127.0.0.1:1"})
announce({"event": "stage", "stage": "weights"})
announce({"event": "ready", "stages_s": {}})
sys.stdin.read()
"""
FAILS = """
from ridgeline.launch.local import announce
announce({"event": "failed", "problem": "torn", "where": "model", "remedy": "download again"})
"""
DIES = "import sys; print('no memory', file=sys.stderr); sys.exit(3)"


@dataclass
class Script:
    """Stands in for a Launch: a program of the test's own."""

    code: str
    log: Path
    name: str = "m-0"
    env: dict[str, str] = field(default_factory=dict)

    @property
    def argv(self) -> list[str]:
        return [sys.executable, "-c", self.code]

    async def start(self) -> Child:
        return await Child.start(self.argv, env=self.env, log=self.log)

    def close(self) -> None:
        pass


class Heard:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.changed = asyncio.Condition()

    async def _hear(self, event: str) -> None:
        async with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    async def listens(self, replica, url) -> None:
        await self._hear(f"{replica} listens at {url}")

    async def said(self, replica, event) -> None:
        await self._hear(f"{replica} {event['event']}")

    async def died(self, replica, reason) -> None:
        await self._hear(f"{replica} died: {reason}")

    async def until(self, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.events) >= count)


@pytest.fixture
def started(monkeypatch):
    """The processes that were started, in order; restarts do not wait."""
    children: list[Child] = []
    start = Child.start

    async def note(*args, **kwargs):
        children.append(await start(*args, **kwargs))
        return children[-1]

    monkeypatch.setattr(Child, "start", note)
    monkeypatch.setattr(replicas, "restart", lambda deaths, lived_s: Restart(0.0, 1, "at once"))
    return children


async def test_a_killed_replica_is_told_of_and_started_again(tmp_path, started):
    heard = Heard()
    replica = ManagedReplica(Script(SERVES, tmp_path / "log"), heard, 60)
    running = asyncio.create_task(replica.run())
    await heard.until(3)
    os.kill(started[0].pid, signal.SIGKILL)
    await heard.until(7)
    await replica.stop(grace_s=30)
    await running
    life = ["m-0 listens at http://127.0.0.1:1", "m-0 stage", "m-0 ready"]
    assert heard.events == [*life, "m-0 died: exit status -9; at once", *life]
    assert [child.returncode is None for child in started] == [False, False]


async def test_a_model_that_cannot_be_loaded_ends_it_with_the_models_error(tmp_path, started):
    with pytest.raises(ModelError, match="torn") as caught:
        await ManagedReplica(Script(FAILS, tmp_path / "log"), Heard(), 60).run()
    assert caught.value.remedy == "download again"
    assert started[0].returncode is not None


async def test_one_that_dies_before_it_was_ready_is_not_tried_again(tmp_path, started):
    with pytest.raises(LaunchError, match="no memory") as caught:
        await ManagedReplica(Script(DIES, tmp_path / "log"), Heard(), 60).run()
    assert "status 3" in str(caught.value)
    assert len(started) == 1


async def test_cancelling_leaves_no_process(tmp_path, started):
    heard = Heard()
    running = asyncio.create_task(ManagedReplica(Script(SERVES, tmp_path / "log"), heard, 60).run())
    await heard.until(3)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert started[0].returncode is not None


async def test_one_that_is_ended_is_told_of_with_the_reason_and_started_again(tmp_path, started):
    heard = Heard()
    replica = ManagedReplica(Script(SERVES, tmp_path / "log"), heard, 60)
    running = asyncio.create_task(replica.run())
    await heard.until(3)
    os.kill(started[0].pid, signal.SIGSTOP)  # as one that hangs
    await replica.end("it hangs")
    await heard.until(7)
    await replica.stop(grace_s=30)
    await running
    assert heard.events[3] == "m-0 died: it hangs; at once"
    assert [child.returncode is None for child in started] == [False, False]


NEVER_READY = SERVES.replace('announce({"event": "ready", "stages_s": {}})\n', "").replace(
    "import sys\n", "import sys; print('still loading', file=sys.stderr)\n", 1
)


async def test_a_start_that_takes_too_long_is_ended_and_says_so(tmp_path, started):
    with pytest.raises(LaunchError, match=r"not ready after 1 s:\nstill loading") as caught:
        await ManagedReplica(Script(NEVER_READY, tmp_path / "log"), Heard(), 1).run()
    assert "start_timeout" in caught.value.remedy
    assert started[0].returncode is not None


SLOW_READERS_WORD = SERVES.replace("sys.stdin.read()", "import time; time.sleep(1.5); sys.exit(4)")


async def test_what_was_ready_in_time_is_not_ended_by_that_limit(tmp_path, started):
    """It ends by itself, behind the limit of its start."""
    heard = Heard()
    replica = ManagedReplica(Script(SLOW_READERS_WORD, tmp_path / "log"), heard, 1.2)
    running = asyncio.create_task(replica.run())
    await heard.until(4)
    await replica.stop(grace_s=30)
    await running
    assert heard.events[3] == "m-0 died: exit status 4; at once"
