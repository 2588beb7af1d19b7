import shutil
from collections import namedtuple

import pytest

from ridgeline.platform.doctor import folders
from ridgeline.platform.doctor.finding import Level

Usage = namedtuple("Usage", "total used free")


def look(path):
    (found,) = folders.folder("state", path, "the ledger and logs", "RIDGELINE_STATE")
    return found


def test_a_folder_that_can_be_written_is_right_and_stays_as_it_was(tmp_path):
    found = look(tmp_path / "not" / "there" / "yet")
    assert found.level is Level.OK
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_wrong(tmp_path):
    (tmp_path / "file").touch()
    found = look(tmp_path / "file" / "state")
    assert found.level is Level.WRONG
    assert "cannot be written: Not a directory" in found.said
    assert found.remedy.startswith("RIDGELINE_STATE=")


@pytest.mark.parametrize(
    ("free", "level"),
    [(10**7, Level.WRONG), (5 * 10**8, Level.WARNING), (10**10, Level.OK)],
)
def test_room_on_the_disk(tmp_path, monkeypatch, free, level):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, free))
    assert look(tmp_path).level is level


MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
40 22 0:40 / {0} rw,relatime shared:1 - {1} server:/export rw
41 22 0:41 / /other\\040place rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_sqlite_on_a_network_filesystem_is_wrong(tmp_path, kind):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(tmp_path, kind))
    found = folders.sqlite_place(tmp_path / "state" / "ledger.db", mounts)
    assert found.level is Level.WRONG
    assert f"lies on {kind}, a network filesystem" in found.said
    assert "postgresql://" in found.remedy


def test_the_nearest_mount_counts(tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format("/elsewhere", "nfs4"))
    assert folders.filesystem(tmp_path, mounts) == "ext4"
    assert folders.filesystem(tmp_path, tmp_path / "none") == ""


def test_the_real_mounts_say_something():
    if folders._MOUNTS.exists():
        assert folders.filesystem(folders.Path("/proc/self")) == "proc"


def test_sqlite_on_a_disk_of_this_machine_is_right(tmp_path):
    found = folders.sqlite_place(tmp_path / "ledger.db")
    assert found.level is Level.OK
    assert list(tmp_path.iterdir()) == []


def test_a_place_where_no_log_can_be_written_is_wrong(tmp_path):
    (tmp_path / "file").touch()
    found = folders.sqlite_place(tmp_path / "file" / "ledger.db")
    assert found.level is Level.WRONG
    assert found.said.startswith("no write-ahead log in")
