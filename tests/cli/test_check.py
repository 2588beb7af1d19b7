"""`ridgeline check claims` as a person meets it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ridgeline import ledger
from ridgeline.cli import ridgeline_command
from ridgeline.errors import SpecError
from ridgeline.platform.experiments import experiments

OWN = """claim,working,unit,stated
70B weights,"model(""llama-3.1-70b"").weights_bytes(""bf16"")",GB,140 GB
bandwidth,"accelerator(""h100-sxm"").memory_bytes_per_s",TB/s,4.8
"""


def check(*arguments: str) -> tuple[str, int]:
    done = CliRunner().invoke(ridgeline_command, ["check", "claims", *arguments])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output, done.exit_code


@pytest.fixture
def own(tmp_path: Path) -> str:
    file = tmp_path / "own.csv"
    file.write_text(OWN)
    return str(file)


def test_every_claim_is_told_and_all_of_ours_come_out():
    told, status = check()
    assert status == 0
    assert [claim.id for claim in ledger.claims() if claim.id not in told] == []
    assert "NOT reproduced" not in told
    assert "355 claims: " in told
    assert " where the usual number is wrong, " in told
    assert "Not computed, since they are counts, givens or published inputs:" in told
    assert max(len(line) for line in told.splitlines()) <= 80


def test_what_is_printed_adds_up():
    told, _ = check()
    summary = next(line for line in told.splitlines() if line.startswith("355 claims"))
    numbers = [int(word) for word in summary.replace(",", "").split() if word.isdigit()]
    assert numbers[0] == sum(numbers[1:]) == 355


def test_wrong_ones_say_why_and_nothing_else_is_listed():
    told, status = check("--wrong")
    assert status == 0
    assert "k^2 gives every leaf port to a host" in told
    assert "64-port spine reaches" in told
    assert "reproduced" not in told.partition("\n\n")[0]
    assert "C184" not in told


def test_one_systems_claims_are_told_alone():
    told, _ = check("--system", "s100")
    assert "2,048 endpoints" in told
    assert "4,032 endpoints" in told
    assert "2 claims: 1 reproduced, 1 where the usual number is wrong" in told


def test_why_shows_formula_values_and_sources():
    told, status = check("--why", "C184")
    assert status == 0
    assert "989.4 TFLOP/s" in told
    assert "3.35 TB/s" in told
    assert "Williams" in told
    assert "ledger: 295.2" in told


def test_why_of_a_truth_shows_both_sides():
    told, _ = check("--why", "C255")
    assert "wrong" in told
    assert "100 ms" not in told
    assert "3 ms" in told


def test_why_of_a_count_says_that_there_is_nothing_to_compute():
    told, status = check("--why", "C006")
    assert status == 0
    assert "not computed" in told
    assert "a count or a given" in told


def test_json_says_the_same_as_the_table():
    told, status = check("--json")
    rows = {row["id"]: row for row in json.loads(told)["claims"]}
    text, _ = check()
    assert status == 0
    assert len(rows) == 355
    for row in rows.values():
        if row["verdict"] != "not computed":
            assert f"{row['id']:<7}{row['told']}" in text
    assert rows["C196"]["off"] == pytest.approx(1.0)
    assert rows["C196"]["why"]
    sources = {one["name"]: one for one in rows["C184"]["starts_from"]}
    assert sources["h100-sxm.memory_bytes_per_s"]["source"]


def test_a_file_of_ones_own_is_judged_and_a_claim_that_is_off_is_a_no(own: str):
    told, status = check(own)
    assert status == 1
    assert "line 2 reproduced" in told
    assert "line 3 off by +43 %" in told
    assert "2 claims: 1 reproduced, 1 stated wrongly, 0 not computed" in told
    assert check(own, "--why", "line 2")[1] == 0
    assert "C196" not in told


def test_a_file_without_a_fault_is_a_yes(tmp_path: Path):
    file = tmp_path / "good.csv"
    file.write_text("\n".join(OWN.splitlines()[:2]))
    assert check(str(file))[1] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--why", "C999"),
        ("--system", "S999"),
        ("--why", "C001", "--system", "S001"),
        ("--why", "C001", "--wrong"),
        ("nowhere.csv",),
        ("OWN", "--system", "S001"),
        ("OWN", "--why", "line 9"),
    ],
)
def test_bad_input_names_the_place_and_a_remedy(own: str, arguments: tuple[str, ...]):
    with pytest.raises(SpecError) as caught:
        check(*(own if one == "OWN" else one for one in arguments))
    assert caught.value.where
    assert caught.value.remedy


def test_the_command_leaves_with_status_two_on_a_bad_file(tmp_path: Path):
    file = tmp_path / "bad.csv"
    file.write_text("claim,working,unit,stated\nx,1 +,,1\n")
    done = subprocess.run(
        [sys.executable, "-m", "ridgeline", "check", "claims", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "line 2, working" in done.stderr
    assert "try:" in done.stderr
    assert "Traceback" not in done.stderr


def test_rows_that_are_refused_are_all_told_after_the_others_were_checked(tmp_path: Path):
    file = tmp_path / "bad.csv"
    file.write_text("claim,working,unit,stated\nx,1 +,,1\ny,2,,2\nz,read_s(1),s,1\n")
    told, status = check(str(file))
    assert status == 2
    assert "line 3 reproduced" in told
    assert "3 claims: 1 reproduced, 0 stated wrongly, 0 not computed, 2 REFUSED" in told
    assert "line 2, working: is not an expression" in told
    assert "line 4, working: read_s: missing a required argument: 'bytes_per_s'" in told
    with pytest.raises(SpecError, match="missing a required argument"):
        check(str(file), "--why", "line 4")


def test_a_number_of_ours_that_is_lost_is_a_no(monkeypatch: pytest.MonkeyPatch):
    broken = {"C101": ledger.Working("C101", 'q("9 h")', "h", "rest.csv, line 3")}
    monkeypatch.setattr(ledger, "workings", lambda: broken)
    told, status = check("--why", "C101")
    assert status == 1
    assert "9 where the ledger has 3.093 h" in told
    assert check("--why", "C103")[1] == 1


GUIDE = Path(__file__).resolve().parents[2] / "docs/guide/claims.md"


def shown_commands() -> list[tuple[str, str]]:
    """Each command that the guide shows, with the output that it shows."""
    blocks = re.findall(
        r"```\n\$ ridgeline check claims (.*?)\n(.*?)\n```", GUIDE.read_text(), re.S
    )
    return [(arguments, output) for arguments, output in blocks]


@pytest.mark.parametrize(("arguments", "output"), shown_commands())
def test_the_guide_shows_what_is_printed(
    arguments: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    own, broken = re.findall(r"```csv\n(.*?)```", GUIDE.read_text(), re.S)
    (tmp_path / "mine.csv").write_text(own)
    (tmp_path / "broken.csv").write_text(broken)
    monkeypatch.chdir(tmp_path)
    told, _ = check(*arguments.split())
    assert told.strip() == output


def test_the_guide_names_every_experiment():
    text = GUIDE.read_text()
    assert [name for name in experiments() if f"`{name}`" not in text] == []
    assert len(shown_commands()) == 3
