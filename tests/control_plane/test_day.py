"""The scripted day of examples/day: its short form, and (slow) the one on real engines."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ridgeline.catalog.packaged import DEFAULT_MODEL, PACKAGED

DAY = Path(__file__).resolve().parents[2] / "examples" / "day" / "day.py"


def rows_of(form: str, *, answers: int, ready: str) -> list[tuple[int, int]]:
    """Of each line of the table, users and replicas, where the day went well."""
    command = [sys.executable, str(DAY), form]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    said = re.search(rf"^(\d+) answers, 0 streams cut, at most {ready} ready$", done.stdout, re.M)
    assert said is not None, done.stdout
    assert int(said[1]) > answers
    found = re.findall(r"^ +\d+ +(\d+) +(\d+) \(\d+\)", done.stdout, re.M)
    return [(int(users), int(replicas)) for users, replicas in found]


def test_a_short_day_cuts_nobody_and_its_bill_is_that_of_its_replicas() -> None:
    rows = rows_of("--short", answers=40, ready="[34]")
    assert len(rows) == 12
    assert rows[0] == (0, 0)
    assert max(replicas for _, replicas in rows) >= 3


@pytest.mark.slow
def test_so_does_a_day_on_real_engines() -> None:
    if PACKAGED[DEFAULT_MODEL].path() is None:
        pytest.skip(f"the default model is not installed: {PACKAGED[DEFAULT_MODEL].install}")
    rows = rows_of("--real", answers=40, ready="2")
    assert rows[0] == (0, 0)
    assert rows[-1][0] == 0
