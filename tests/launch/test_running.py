import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ridgeline.cli import ridgeline_command
from ridgeline.errors import LaunchError
from ridgeline.launch.running import read, write

WAITS = "import sys; from pathlib import Path; from ridgeline.launch.running import write\n" + (
    "write(sys.argv[1], 'http://127.0.0.1:1', ('m',), Path('logs')); print('up', flush=True)\n"
    "sys.stdin.read()"
)


def platform(name):
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def end(process):
    process.communicate()


def test_what_runs_is_read_back_and_gone_when_its_process_is():
    process = platform("a")
    found = read()
    assert [(one.name, one.pid, one.models) for one in found] == [("a", process.pid, ("m",))]
    end(process)
    assert read() == []
    assert not found[0].file.exists()


def test_two_platforms_of_one_name_are_refused():
    process = platform("a")
    with pytest.raises(LaunchError, match="is up already"):
        write("a", "http://x", (), Path("logs"))
    end(process)
    write("a", "http://x", (), Path("logs"))


def test_a_note_of_an_earlier_process_with_our_id_is_stale():
    running = write("a", "http://x", (), Path("logs"))
    note = json.loads(running.file.read_text())
    running.file.write_text(json.dumps({**note, "began": "1"}))
    assert read() == []


def test_a_folder_that_cannot_be_written_is_said_with_a_remedy(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RIDGELINE_STATE", str(tmp_path / "file"))
    with pytest.raises(LaunchError, match="cannot be noted") as refused:
        write("a", "http://x", (), Path("logs"))
    assert "RIDGELINE_STATE" in refused.value.remedy


def test_a_torn_note_is_passed_over():
    running = write("a", "http://x", (), Path("logs"))
    running.file.write_text('{"name": "a"')
    assert read() == []


def test_down_stops_the_only_one_and_status_says_nothing_runs():
    process = platform("a")
    result = CliRunner().invoke(ridgeline_command, ["down", "--timeout", "30"])
    assert result.exit_code == 0, result.output
    assert "a is down" in result.output
    end(process)
    status = CliRunner().invoke(ridgeline_command, ["status"])
    assert status.exit_code == 1
    assert "ridgeline up" in status.output


def test_down_wants_a_name_where_several_run():
    first, second = platform("a"), platform("b")
    result = CliRunner().invoke(ridgeline_command, ["down"])
    assert "several platforms run" in str(result.exception)
    for process in (first, second):
        end(process)


def test_status_tells_of_a_gateway_that_does_not_answer():
    process = platform("a")
    result = CliRunner().invoke(ridgeline_command, ["status", "--json"])
    end(process)
    [one] = json.loads(result.output)
    assert (one["name"], one["answers"], one["replicas"]) == ("a", False, [])
    assert one["pid"] != os.getpid()
