"""Stands between us and a program that does not know our ways, so that it never outlives us.

    python -m ridgeline.launch.shim -- PROGRAM ARGUMENT ...

Law of this file: when this process leaves, nothing that it started is left, on Linux not even what
went into a session of its own. It leaves when the program ends, when its standard input closes (the
process that started it is gone, kill -9 included), or when it is told to. SIGTERM is handed on to
the program alone: how its own children end is its affair. SIGINT ends all of them at once.

A guard can be killed too, and vLLM's engine lives on when its server is killed. So there are two,
of which each ends everything when the other one is gone:

    ours -- outer guard -- inner guard -- program -- its children
         pipe           pipe

The program writes to our standard error; on standard output we say its process id, and no more.
Its exit status is ours, and 128 + N where signal N ended it. `serving.control.foreign` starts this.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ridgeline.launch.local import announce, leave_with_parent

Signals = set[signal.Signals | int]
_HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
#: From <linux/prctl.h>.
_PARENT_DEATH_SIGNAL, _CHILD_SUBREAPER = 1, 36
_PPID = 1  # proc(5)'s field 4, counted behind the command's name
_NO_PROGRAM = 127  # as a shell says it


def run(argv: Sequence[str]) -> int:
    """Start the program behind two guards, stay until it ends or we must leave; its status."""
    # The inner guard ends everything and then itself: killed before, it would leave all to us.
    return _guard(lambda was: _fork_inner(argv, was), signal.SIGINT)


def _guard(start: Callable[[Signals], int | None], last: signal.Signals) -> int:
    """Follow what `start` starts, the leader of a group, and end all that it started.

    `last` is the signal that ends the leader at once.
    """
    # Signals are waited for, never handled: so none can come at a bad moment.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    was = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    _control(_CHILD_SUBREAPER, 1)
    leader = start(was)
    if leader is None:
        return _NO_PROGRAM
    leave_with_parent(lambda: os.kill(os.getpid(), signal.SIGINT))
    status = _follow(leader, last)
    _end_all(leader)
    return status if status >= 0 else 128 - status


def _fork_inner(argv: Sequence[str], was: Signals) -> int:
    """The inner guard, whose standard input closes when we are gone."""
    reading, writing = os.pipe()  # `writing` stays open for as long as we are there
    inner = os.fork()
    if inner:
        os.close(reading)
        return inner
    os.setpgid(0, 0)  # who kills our group must not kill both
    os.close(writing)
    os.dup2(reading, sys.stdin.fileno())
    os._exit(_guard(lambda _: _start(argv, was), signal.SIGKILL))


def _start(argv: Sequence[str], was: Signals) -> int | None:
    """The program, in a group of its own; None where it cannot be started."""
    ours = os.getpid()

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, was)
        _control(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != ours:  # we went before the line above
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        program = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            process_group=0,
            preexec_fn=prepare,
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"cannot start {argv[0]}: {error}", file=sys.stderr, flush=True)
        return None
    announce({"event": "program", "pid": program.pid})
    program.returncode = 0  # it is waited for in `_follow`; this object must not do it as well
    return program.pid


def _follow(leader: int, last: signal.Signals) -> int:
    """Until it has ended, by itself or since we must leave: its status."""
    while True:
        match signal.sigwait(_HEARD):
            case signal.SIGCHLD:
                while ended := _next_ended():
                    if ended[0] == leader:
                        return os.waitstatus_to_exitcode(ended[1])
            case signal.SIGTERM:
                os.kill(leader, signal.SIGTERM)  # it is not waited for yet, so the id is its own
            case _:
                os.kill(leader, last)


def _next_ended() -> tuple[int, int] | None:
    """A child that has ended, the program or one that lost its parent, and its status."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _end_all(group: int) -> None:
    """Nothing is left: first the group; then, one by one, who left it and became our child."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    while True:
        for pid in _children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    """Our own children now; what a child that dies leaves behind is among them the next time."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            told = stat.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        if int(told.rpartition(")")[2].split()[_PPID]) == os.getpid():
            found.append(int(stat.parent.name))
    return found


def _control(option: int, value: int) -> None:
    """Linux's prctl; elsewhere the group alone has to do."""
    if sys.platform == "linux":
        _LIBC.prctl(option, value, 0, 0, 0)


_LIBC = ctypes.CDLL(None)


if __name__ == "__main__":
    sys.exit(run(sys.argv[sys.argv.index("--") + 1 :]))
