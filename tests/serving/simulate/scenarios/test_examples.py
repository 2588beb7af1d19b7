"""The scenarios of examples/simulate print what is beside them."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[4] / "examples" / "simulate"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_it_prints_what_it_should(file):
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    assert done.stdout == file.with_suffix(".out").read_text()
