import asyncio
import os
import stat
from pathlib import Path

import pytest

from ridgeline.errors import LaunchError, SpecError
from ridgeline.launch.door import Door, ask, door_of
from ridgeline.launch.running import Running, write


@pytest.fixture
def running() -> Running:
    return write("mine", "http://127.0.0.1:1", ("a",), Path("logs"))


async def echo(values):
    return dict(values)


async def refuse(_values):
    raise SpecError("no", where="models", remedy="yes")


async def test_a_command_is_answered(running):
    door = Door(door_of(running), {"echo": echo})
    await door.open()
    assert await ask(running, "echo", said="ä", number=1) == {"said": "ä", "number": 1}
    await door.close()
    assert not door_of(running).exists()


async def test_an_error_for_the_user_arrives_with_its_remedy(running):
    door = Door(door_of(running), {"refuse": refuse})
    await door.open()
    with pytest.raises(SpecError) as caught:
        await ask(running, "refuse")
    assert str(caught.value) == "models: no\n  try: yes"
    await door.close()


async def test_only_the_owner_may_come_in(running):
    door = Door(door_of(running), {})
    await door.open()
    assert stat.S_IMODE(door_of(running).stat().st_mode) == 0o600
    await door.close()


async def test_a_path_that_is_too_long_for_a_socket_will_do(running, monkeypatch, tmp_path):
    long = tmp_path / ("x" * 120)
    monkeypatch.setenv("RIDGELINE_STATE", str(long))
    running = write("mine", "http://127.0.0.1:1", ("a",), Path("logs"))
    assert len(os.fsencode(door_of(running))) > 108
    door = Door(door_of(running), {"echo": echo})
    await door.open()
    assert await ask(running, "echo", x=1) == {"x": 1}
    await door.close()


async def test_what_a_killed_platform_left_is_no_hindrance(running):
    first, second = (Door(door_of(running), {"echo": echo}) for _ in range(2))
    await first.open()
    await second.open()  # as if the first had been killed
    assert await ask(running, "echo", x=2) == {"x": 2}
    await asyncio.gather(first.close(), second.close())


async def test_nobody_at_home_is_said(running):
    with pytest.raises(LaunchError, match="lets no command in"):
        await ask(running, "echo")


async def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match="cannot be let in"):
        await Door(tmp_path / "missing" / "x.sock", {}).open()
