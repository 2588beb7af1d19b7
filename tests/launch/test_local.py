import asyncio
import os
import signal
import subprocess
import sys

import psutil
import pytest

from ridgeline.errors import LaunchError
from ridgeline.launch.local import Child

TALKS = """
import sys, threading
from ridgeline.launch.local import announce, leave_with_parent
gone = threading.Event()
leave_with_parent(gone.set)
print("to the log", file=sys.stderr, flush=True)
announce({"event": "listening", "url": "http://x"})
print("not an event", flush=True)
gone.wait()
"""
DEAF = """
import signal, time
from ridgeline.launch.local import announce
signal.signal(signal.SIGTERM, signal.SIG_IGN)
announce({"event": "deaf"})
while True: signal.pause()
"""
PARENT = """
import asyncio, sys
from pathlib import Path
from ridgeline.launch.local import Child
async def main():
    child = await Child.start([sys.executable, "-c", sys.argv[1]], env={}, log=Path(sys.argv[2]))
    async for event in child.events():
        print(child.pid, flush=True)
asyncio.run(main())
"""


def python(code):
    return [sys.executable, "-c", code]


async def test_events_are_lines_of_json_and_the_log_has_the_rest(tmp_path):
    child = await Child.start(python(TALKS), env={}, log=tmp_path / "deep" / "log")
    events = child.events()
    assert await anext(events) == {"event": "listening", "url": "http://x"}
    assert child.returncode is None
    assert await child.stop(grace_s=30) == -signal.SIGTERM
    assert [event async for event in events] == []
    assert "to the log" in child.last_words()


async def test_what_ignores_the_request_to_leave_is_ended(tmp_path):
    child = await Child.start(python(DEAF), env={}, log=tmp_path / "log")
    await anext(child.events())
    assert await child.stop(grace_s=0.2) == -signal.SIGKILL


async def test_stopping_what_has_ended_gives_its_status(tmp_path):
    child = await Child.start(python("raise SystemExit(7)"), env={}, log=tmp_path / "log")
    assert await child.wait() == 7
    assert await child.stop(grace_s=1) == 7
    assert await child.kill() == 7


async def test_a_program_that_is_not_there_is_a_launch_error(tmp_path):
    with pytest.raises(LaunchError, match="cannot start /no/such"):
        await Child.start(["/no/such"], env={}, log=tmp_path / "log")


async def test_the_environment_is_added_to_ours(tmp_path):
    code = "import os, sys; print(os.environ['MINE'], 'PATH' in os.environ, file=sys.stderr)"
    child = await Child.start(python(code), env={"MINE": "1"}, log=tmp_path / "log")
    await child.wait()
    assert child.last_words() == "1 True"


def test_a_child_leaves_when_its_parent_is_killed(tmp_path):
    """Real processes, kill -9 of the parent: no orphan."""
    with subprocess.Popen(
        [*python(PARENT), TALKS, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        os.kill(parent.pid, signal.SIGKILL)
    psutil.wait_procs([child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


async def test_a_cancelled_wait_leaves_the_child_to_be_stopped(tmp_path):
    child = await Child.start(python(TALKS), env={}, log=tmp_path / "log")
    await anext(child.events())
    waiting = asyncio.create_task(child.wait())
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await child.kill() == -signal.SIGKILL
