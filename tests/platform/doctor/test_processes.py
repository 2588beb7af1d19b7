import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ridgeline.launch.running import write
from ridgeline.platform.doctor import processes
from ridgeline.platform.doctor.finding import Level
from ridgeline.platform.doctor.processes import Process, noted, notes, orphans, port
from ridgeline.spec import Platform, parse

on_linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
REPLICA = ("python", "-m", "ridgeline", "serve", "m", "--supervised")


def spec(listen: str) -> Platform:
    models = "name: mine\nmodels: [{name: a, engine: {kind: fake}}]\n"
    return parse(f"{models}gateway: {{listen: '{listen}', api_key_env: K}}", name="p")


def test_a_note_of_a_platform_that_is_gone_is_a_warning_and_stays():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    note = write("mine", "http://127.0.0.1:1", ("a",), Path("logs"))
    told = json.loads(note.file.read_text())
    note.file.write_text(json.dumps({**told, "pid": done.pid}))
    found, rest = notes(noted())
    assert found.level is Level.WARNING
    assert found.said.startswith(f"mine was killed: process {done.pid} is gone")
    assert rest.said == "up: none"
    assert note.file.exists()


def test_a_platform_that_is_up_is_named():
    write("mine", "http://127.0.0.1:1", ("a",), Path("logs"))
    (found,) = notes(noted())
    assert (found.level, found.said) == (Level.OK, "up: mine at http://127.0.0.1:1")


def test_a_file_that_is_no_note_is_a_warning(tmp_path):
    (tmp_path / "x.json").write_text("{")
    found, _ = notes(noted(tmp_path))
    assert found.level is Level.WARNING


@on_linux
def test_a_replica_whose_platform_is_gone_is_an_orphan(tmp_path):
    package = tmp_path / "ridgeline"
    package.mkdir()
    waits = "import signal; print('waits', flush=True); signal.pause()"
    (package / "__main__.py").write_text(waits)
    # A shell starts it and ends; from then on nobody of ours is its parent.
    command = f"'{sys.executable}' -S -m ridgeline serve m --supervised & echo $!"
    with subprocess.Popen(
        ["sh", "-c", command], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        try:
            assert shell.stdout.readline() == "waits\n"
            shell.wait()
            found = [one for one in _orphans() if f"process {pid} " in one.said]
        finally:
            os.kill(pid, signal.SIGKILL)
    assert [one.level for one in found] == [Level.WRONG]
    assert found[0].remedy == f"kill {pid}"


def _orphans():
    return list(orphans(processes.processes(), os.getuid()))


def table(*found: Process) -> dict[int, Process]:
    return {one.pid: one for one in found}


def test_a_replica_of_a_platform_is_none():
    leader = Process(5, 1, 7, ("/venv/bin/python", "/venv/bin/ridgeline", "up"))
    (found,) = orphans(table(leader, Process(6, 5, 7, REPLICA)), 7)
    assert found.level is Level.OK


def test_a_replica_of_somebody_else_is_theirs():
    (found,) = orphans(table(Process(1, 0, 0, ("init",)), Process(6, 1, 8, REPLICA)), 7)
    assert found.level is Level.OK


def test_a_worker_without_its_platform_is_an_orphan():
    worker = Process(6, 1, 7, ("python", "-m", "ridgeline", "gateway-worker"))
    (found,) = orphans(table(Process(1, 0, 0, ("init",)), worker), 7)
    assert found.level is Level.WRONG


def test_a_port_that_is_free_is_right():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        number = held.getsockname()[1]
    assert port(spec(f"127.0.0.1:{number}"), []).level is Level.OK
    assert port(spec("127.0.0.1:0"), []).level is Level.OK


@on_linux
def test_a_port_that_is_taken_says_by_whom():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        number = held.getsockname()[1]
        found = port(spec(f"127.0.0.1:{number}"), [])
    assert found.level is Level.WRONG
    assert f"127.0.0.1:{number} is taken by process {os.getpid()} (" in found.said


def test_the_port_of_the_platform_itself_is_right():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        number = held.getsockname()[1]
        up = write("mine", f"http://127.0.0.1:{number}", ("a",), Path("logs"))
        found = port(spec(f"127.0.0.1:{number}"), [up])
    assert found.level is Level.OK


def test_an_address_of_another_machine_is_wrong():
    found = port(spec("192.0.2.1:8000"), [])
    assert found.level is Level.WRONG
    assert found.remedy == "gateway.listen: an address of this machine"


def test_a_port_that_is_not_for_this_user_is_wrong():
    error = PermissionError(13, "Permission denied")
    found = processes._cannot(error, "127.0.0.1:80", 80, [])
    assert found.level is Level.WRONG
    assert "docs/guide/tls.md" in found.remedy


def test_a_long_command_line_is_cut():
    assert len(Process(1, 0, 0, ("x" * 500,)).shown) < 100
    assert Process(1, 0, 0, ()).shown == "process 1 (nameless)"
