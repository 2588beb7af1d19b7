"""`ridgeline up`: what its options ask for, before anything is started."""

import pytest
from click.testing import CliRunner

from ridgeline.cli.up import up
from ridgeline.errors import SpecError


@pytest.mark.parametrize("name", ["Two Words", "-a", "a/b", "x" * 64, ""])
def test_a_name_that_could_not_name_a_folder_is_refused(name: str):
    failed = CliRunner().invoke(up, ["--name", name, "--replica", "http://127.0.0.1:1"]).exception
    assert isinstance(failed, SpecError)
    assert failed.where == "--name"
    assert "letters" in failed.remedy
