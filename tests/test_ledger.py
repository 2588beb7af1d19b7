import json

from click.testing import CliRunner

from ridgeline import ledger
from ridgeline.cli import ridgeline_command


def test_the_ledger_has_every_system_once():
    ids = [system.id for system in ledger.systems()]
    assert len(ids) == len(set(ids)) == 195


def test_the_copy_equals_the_shared_ledger(shared):
    ours = ledger.resources.files("ridgeline.ledger")
    for name in ("systems.csv", "claims.csv"):
        assert ours.joinpath(name).read_bytes() == (shared / "ledger" / name).read_bytes()


def test_marked_tests_are_found_in_the_sources(tmp_path):
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_a.py").write_text(
        'import pytest\n@pytest.mark.proves("S001", "S002")\ndef test_x(): ...\n'
        'class TestY:\n    @pytest.mark.proves("S001")\n    async def test_z(self): ...\n'
        "def test_unmarked(): ...\n"
    )
    found = dict(ledger._marked_tests(tests))
    assert found == {
        "S001": ["tests/test_a.py::test_x", "tests/test_a.py::test_z"],
        "S002": ["tests/test_a.py::test_x"],
    }


def test_a_row_is_proven_only_when_all_its_tests_passed():
    system = ledger.systems()[0]
    assert ledger.Row(system, {}).state == "open"
    assert ledger.Row(system, {"a": "passed", "b": "passed"}).state == "proven"
    assert ledger.Row(system, {"a": "passed", "b": "not run"}).state == "not run"
    assert ledger.Row(system, {"a": "failed", "b": "not run"}).state == "failed"


def test_systems_as_json_says_the_same_as_the_table():
    result = CliRunner().invoke(ridgeline_command, ["systems", "--json"])
    data = {row["id"]: row for row in json.loads(result.output)["systems"]}
    assert len(data) == 195
    for row in ledger.rows():
        assert data[row.system.id]["state"] == row.state
        assert data[row.system.id]["tests"] == row.outcomes
