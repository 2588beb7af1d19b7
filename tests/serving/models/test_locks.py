"""Locks between processes."""

import subprocess
import sys

from ridgeline.serving.models.locks import if_free, locked

HOLD = """
import sys
from pathlib import Path
from ridgeline.serving.models.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(file):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_is_held_by_one_process_and_freed_by_its_death(tmp_path):
    with holder(tmp_path / "lock") as other:
        with if_free(tmp_path / "lock") as is_free:
            assert not is_free
        other.kill()
        other.wait()
        with if_free(tmp_path / "lock") as is_free:
            assert is_free


def test_who_waits_is_told_so_and_gets_it(tmp_path):
    heard = []
    with holder(tmp_path / "lock") as other:

        def waiting():
            heard.append("waits")
            other.stdin.close()  # now the other one lets it go

        with locked(tmp_path / "lock", waiting=waiting):
            heard.append("has it")
    assert heard == ["waits", "has it"]


def test_several_may_share_and_then_nobody_has_it_alone(tmp_path):
    file = tmp_path / "lock"
    with locked(file, shared=True), locked(file, shared=True), if_free(file) as is_free:
        assert not is_free


def test_a_lock_whose_file_was_removed_meanwhile_is_asked_for_again(tmp_path):
    file = tmp_path / "lock"
    with holder(file) as other:

        def waiting():
            file.unlink()
            other.stdin.close()

        with locked(file, waiting=waiting), if_free(file) as is_free:
            assert not is_free  # it is the file of that name that we hold
