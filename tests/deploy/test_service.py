"""The systemd unit says what draining needs, and systemd itself finds nothing wrong with it."""

import os
import re
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from ridgeline.platform import live

FILE = Path(__file__).resolve().parents[2] / "deploy/ridgeline.service"
ANALYZE = shutil.which("systemd-analyze")
#: A machine of CI may be a container without systemd, and there nothing may be skipped.
IN_CI = os.environ.get("RIDGELINE_NO_SKIPS") == "1"


@pytest.fixture
def service() -> dict[str, str]:
    parser = RawConfigParser(strict=True)
    parser.optionxform = str
    parser.read(FILE)
    return dict(parser["Service"])


def test_sigterm_reaches_the_leader_alone_and_it_has_the_time_to_drain(service):
    assert service["KillMode"] == "mixed"
    assert service["KillSignal"] == "SIGTERM"
    assert int(service["TimeoutStopSec"]) >= live.DRAIN_S + 3 * live.PARTING_S


def test_it_is_not_root_and_keeps_its_hands_off_all_else(service):
    assert service["User"] == "ridgeline"
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    assert service["CapabilityBoundingSet"] == ""


def test_what_it_keeps_lies_where_it_may_write(service):
    told = dict(part.split("=", 1) for part in service["Environment"].split())
    assert told["RIDGELINE_STATE"] == f"/var/lib/{service['StateDirectory']}"
    assert told["RIDGELINE_CACHE"] == f"/var/cache/{service['CacheDirectory']}"


def test_keys_are_not_in_the_unit(service):
    assert not re.search(r"KEY=", FILE.read_text())
    assert service["EnvironmentFile"].startswith("-/etc/ridgeline/")


def test_it_starts_and_reloads_the_same_spec(service):
    program, verb, spec = service["ExecStart"].split()
    assert (program, verb) == ("/opt/ridgeline/bin/ridgeline", "up")
    assert service["ExecReload"] == f"{program} reload {spec}"


def test_a_replica_that_runs_out_of_memory_does_not_take_the_others_along(service):
    assert service["OOMPolicy"] == "continue"


if ANALYZE or not IN_CI:
    needs_systemd = pytest.mark.skipif(
        not ANALYZE, reason="needs systemd-analyze: apt-get install systemd"
    )

    @needs_systemd
    def test_systemd_finds_nothing_wrong(tmp_path):
        unit = _here(tmp_path)
        done = subprocess.run(
            [ANALYZE, "verify", "--recursive-errors=no", str(unit)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.stdout + done.stderr, done.returncode) == ("", 0)

    @needs_systemd
    def test_systemd_calls_it_well_hardened(tmp_path):
        unit = _here(tmp_path)
        done = subprocess.run(
            [ANALYZE, "security", "--offline=yes", "--threshold=30", "--no-pager", str(unit)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def _here(folder: Path) -> Path:
    """The unit with a program that is on this machine in place of ours."""
    unit = folder / FILE.name
    unit.write_text(FILE.read_text().replace("/opt/ridgeline/bin/ridgeline", "/bin/true"))
    return unit
