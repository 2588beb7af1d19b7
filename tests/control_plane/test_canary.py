"""The canary of examples/canary: slower is found on fake replicas, and (slow) each other fault."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ridgeline.catalog.packaged import DEFAULT_MODEL, PACKAGED

CANARY = Path(__file__).resolve().parents[2] / "examples" / "canary" / "canary.py"


def ended(*arguments: str) -> str:
    """What the script says, where the rollout ended as the fault deserves."""
    command = [sys.executable, str(CANARY), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert re.search(r"^0 requests failed$", done.stdout, re.M), done.stdout
    return done.stdout


def test_a_version_whose_first_token_takes_a_fifth_longer_goes_back() -> None:
    said = ended("--short", "--fault", "slower")
    assert "the new version was sent back" in said
    assert re.search(r"it is worse: TTFT 1\.[12]\d times that of before", said)


@pytest.mark.slow
def test_an_equal_one_is_promoted() -> None:
    assert "the new version was promoted" in ended("--short", "--fault", "none")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["template", "dtype", "truncation", "none"])
def test_so_it_is_on_real_engines(fault: str) -> None:
    if PACKAGED[DEFAULT_MODEL].path() is None:
        pytest.skip(f"the default model is not installed: {PACKAGED[DEFAULT_MODEL].install}")
    said = ended("--fault", fault)
    if fault != "none":
        assert re.search(r" answers, 0 of them of the new version", said)


@pytest.mark.slow
def test_a_seed_draws_the_same_fault_again() -> None:
    drawn = [re.search(r"the fault was: (\w+)", ended("--short", "--seed", "3")) for _ in range(2)]
    assert drawn[0] is not None
    assert drawn[1] is not None
    assert drawn[0][1] == drawn[1][1]
