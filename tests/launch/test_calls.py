"""Calls between two processes: answered, refused, and ended when one side goes."""

import asyncio
import sys

import pytest

from ridgeline.errors import LaunchError
from ridgeline.launch.calls import Calls

CHILD = """
import asyncio
from ridgeline.launch.calls import with_parent

async def main():
    calls = None
    async def double(told):
        return told["number"] * 2
    async def back(told):
        return await calls.ask("name")
    async def fail(told):
        raise ValueError("no such thing")
    async def leave(told):
        raise SystemExit
    calls = await with_parent({"double": double, "back": back, "fail": fail, "leave": leave})
    print("a word that is no message")
    await calls.run()

asyncio.run(main())
"""


@pytest.fixture
async def child():
    """A child that answers, and our side of the calls."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CHILD,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )

    async def name(_) -> str:
        return "parent"

    calls = Calls(process.stdout, process.stdin, {"name": name})
    running = asyncio.create_task(calls.run())
    yield calls, process
    if process.returncode is None:
        process.kill()
    await process.wait()
    await running


async def test_both_sides_ask_at_once(child) -> None:
    calls, _ = child
    answers = await asyncio.gather(
        *(calls.ask("double", number=n) for n in range(50)), calls.ask("back")
    )
    assert answers == [2 * n for n in range(50)] + ["parent"]


async def test_a_failure_is_told_and_the_next_call_is_answered(child) -> None:
    calls, _ = child
    with pytest.raises(LaunchError, match="no such thing"):
        await calls.ask("fail")
    with pytest.raises(LaunchError, match="unheard"):
        await calls.ask("unheard")
    assert await calls.ask("double", number=4) == 8


async def test_whoever_waits_for_a_process_that_dies_is_told(child) -> None:
    calls, process = child
    await calls.ask("double", number=1)
    process.kill()
    with pytest.raises(LaunchError, match="gone"):
        await calls.ask("double", number=2)
    with pytest.raises(LaunchError, match="gone"):
        await calls.ask("double", number=3)


async def test_a_child_ends_when_its_parent_hangs_up(child) -> None:
    _, process = child
    process.stdin.close()
    async with asyncio.timeout(10):
        assert await process.wait() == 0


async def test_lines_that_are_no_messages_are_skipped() -> None:
    reader = asyncio.StreamReader()
    for line in (b"nonsense\n", b"[1]\n", b'{"gives": 1}\n', b'{"id": 7, "gives": 1}\n'):
        reader.feed_data(line)
    reader.feed_eof()
    written: list[bytes] = []

    class Writer:
        def write(self, data: bytes) -> None:
            written.append(data)

        def is_closing(self) -> bool:
            return False

        def close(self) -> None:
            written.append(b"closed")

    await Calls(reader, Writer(), {}).run()
    assert written == [b"closed"]
