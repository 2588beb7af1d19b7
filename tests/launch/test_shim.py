"""Real processes: whatever ends the shim, nothing that it started is left."""

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress

import psutil
import pytest

from ridgeline.launch.local import Child

WAIT_S = 30
#: Starts a child of its group, one of another session, and one whose parent is gone; tells of all.
FAMILY = """
import json, os, signal, subprocess, sys
signal.signal(signal.SIGTERM, %s)
sleeps = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
leaves = f'''import subprocess, sys
quiet = subprocess.DEVNULL
one = subprocess.Popen([sys.executable, "-c", {sleeps!r}], stdout=quiet, start_new_session=True)
print(one.pid)'''
near = subprocess.Popen([sys.executable, "-c", sleeps])
far = subprocess.Popen([sys.executable, "-c", sleeps], start_new_session=True)
lost = subprocess.run([sys.executable, "-c", leaves], stdout=subprocess.PIPE, text=True, check=True)
with open(sys.argv[1], "w") as told:
    json.dump([os.getpid(), near.pid, far.pid, int(lost.stdout)], told)
%s
"""
DEAF = FAMILY % ("signal.SIG_IGN", "while True: signal.pause()")
ENDS = FAMILY % ("signal.SIG_DFL", "sys.exit(7)")
DRAINS = FAMILY % ("lambda *_: sys.exit(3)", "while True: signal.pause()")
#: What starts the shim, and is killed.
PARENT = """
import asyncio, sys
from pathlib import Path
from ridgeline.launch.local import Child
async def main():
    child = await Child.start(sys.argv[2:], env={}, log=Path(sys.argv[1]))
    async for event in child.events():
        print(child.pid, flush=True)
asyncio.run(main())
"""


def shim(*argv):
    return [sys.executable, "-m", "ridgeline.launch.shim", "--", *map(str, argv)]


def python(code, *arguments):
    return [sys.executable, "-c", code, *map(str, arguments)]


class Told:
    """A pipe by name through which FAMILY tells its process ids."""

    def __init__(self, tmp_path):
        self.path = tmp_path / "told"
        os.mkfifo(self.path)
        self.end = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.known = []

    def pids(self):
        ready, _, _ = select.select([self.end], [], [], WAIT_S)
        assert ready, "the program did not tell its children"
        return json.loads(os.read(self.end, 4096))

    def family(self):
        self.known = [psutil.Process(pid) for pid in self.pids()]
        return self.known


@pytest.fixture
def told(tmp_path):
    pipe = Told(tmp_path)
    yield pipe
    os.close(pipe.end)
    for one in pipe.known:  # of a test that failed
        with suppress(psutil.NoSuchProcess):
            one.kill()


def all_gone(processes):
    psutil.wait_procs(processes, timeout=WAIT_S)
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


async def start(tmp_path, *argv):
    child = await Child.start(shim(*argv), env={}, log=tmp_path / "log")
    event = await anext(child.events())
    assert event["event"] == "program"
    assert event["pid"] != child.pid
    return child


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(5)", 5), ("import os; os.kill(os.getpid(), 9)", 137), ("pass", 0)],
)
async def test_its_status_is_the_programs(tmp_path, code, status):
    child = await start(tmp_path, *python(code))
    assert await child.wait() == status


async def test_a_program_that_is_not_there_is_said_in_the_log(tmp_path):
    child = await Child.start(shim("/no/such"), env={}, log=tmp_path / "log")
    assert await child.wait() == 127
    assert "cannot start /no/such" in child.last_words()


async def test_all_that_the_program_says_is_in_the_log(tmp_path):
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
    child = await start(tmp_path, *python(code))
    await child.wait()
    assert child.last_words() == "out\nerr"


async def test_sigterm_lets_the_program_end_its_own_way(tmp_path, told):
    child = await start(tmp_path, *python(DRAINS, told.path))
    processes = told.family()
    assert await child.stop(grace_s=WAIT_S) == 3
    assert all_gone(processes) == []


async def test_what_a_program_leaves_behind_ends_with_it(tmp_path, told):
    child = await start(tmp_path, *python(ENDS, told.path))
    pids = told.pids()
    assert await child.wait() == 7
    # Before it is gone itself: also the one that had lost its parent.
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


async def test_one_that_is_deaf_goes_at_once_when_told_twice(tmp_path, told):
    child = await start(tmp_path, *python(DEAF, told.path))
    processes = told.family()
    assert await child.stop(grace_s=WAIT_S, at_once=True) == 137
    assert all_gone(processes) == []


@pytest.mark.parametrize("too", [[], [0], [1]], ids=["alone", "with-outer", "with-inner"])
def test_kill_9_of_the_parent_leaves_nothing(tmp_path, told, too):
    argv = python(PARENT, tmp_path / "log", *shim(*python(DEAF, told.path)))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            outer = psutil.Process(int(parent.stdout.readline()))
            processes = [outer, *outer.children(), *told.family()]
        finally:
            os.kill(parent.pid, signal.SIGKILL)
    for number in too:
        processes[number].kill()
    assert len(processes) == 6
    assert all_gone(processes) == []


@pytest.mark.parametrize("who", ["outer", "inner"])
async def test_kill_9_of_one_guard_leaves_nothing_either(tmp_path, told, who):
    child = await start(tmp_path, *python(DEAF, told.path))
    processes = told.family()
    outer = psutil.Process(child.pid)
    [inner] = outer.children()
    os.kill(outer.pid if who == "outer" else inner.pid, signal.SIGKILL)
    assert await child.wait() == (-9 if who == "outer" else 137)
    assert all_gone([outer, inner, *processes]) == []


async def test_kill_9_of_its_whole_group_leaves_nothing_either(tmp_path, told):
    child = await start(tmp_path, *python(DEAF, told.path))
    processes = told.family()
    guards = [psutil.Process(child.pid), *psutil.Process(child.pid).children()]
    assert await child.kill() == -9
    assert all_gone([*guards, *processes]) == []


async def test_a_program_that_writes_much_is_not_held_up(tmp_path):
    code = "import sys\nfor _ in range(20_000): print('x' * 1000, file=sys.stderr)"
    child = await start(tmp_path, *python(code))
    assert await child.wait() == 0
    assert (tmp_path / "log").stat().st_size == 20_000 * 1001
