"""Programs that do not speak our events, stood in for by `stand_in_server`: real processes."""

import os
import signal
import socket
import sys

import psutil
import pytest

import stand_in_server
from ridgeline.errors import LaunchError
from ridgeline.serving.control.foreign import ForeignLaunch, Program, _Port

WAIT_S = 30
MARKS = (("Starting to load model", "weights"), ("Loading weights took", "warm-up"))


class Loan:
    def __init__(self, env=None):
        self.env = env or {}
        self.is_open = True

    def close(self):
        self.is_open = False


@pytest.fixture
def launch(tmp_path):
    """Makes a launch of the stand-in, with faults; `lent` has what it borrowed."""
    path = stand_in_server.executable(tmp_path)

    def make(words="", borrow=Loan):
        def command(port):
            return [str(path), "serve", "m", "--port", str(port), "--served-model-name", "chat"]

        program = Program("vllm", command, {"STAND_IN": words}, MARKS, "chat")
        return ForeignLaunch("chat-0", program, tmp_path / "log", borrow)

    return make


async def until(events, wanted):
    """All events up to the first of this name."""
    seen = []
    async for event in events:
        seen.append(event)
        if event["event"] == wanted:
            return seen
    raise AssertionError(f"it ended before {wanted}: {seen}")


def left(log):
    """Which of the processes that it told of are there."""
    pids = stand_in_server.started(log)
    assert len(pids) == 4
    return [pid for pid in pids if psutil.pid_exists(pid)]


async def test_it_says_what_one_of_ours_would(launch, tmp_path):
    process = await launch().start()
    seen = await until(process.events(), "ready")
    named = [(event["event"], event.get("stage")) for event in seen]
    assert named == [
        ("stage", "import"),
        ("listening", None),
        ("stage", "weights"),
        ("stage", "warm-up"),
        ("ready", None),
    ]
    assert seen[-1]["engine"] == "vllm"
    assert [*seen[-1]["stages_s"]] == ["process", "import", "weights", "warm-up"]
    assert all(spent_s > 0 for spent_s in seen[-1]["stages_s"].values())
    assert await process.stop(WAIT_S) == 128 + signal.SIGTERM
    assert left(tmp_path / "log") == []


async def test_events_end_when_it_does(launch, tmp_path):
    process = await launch().start()
    events = process.events()
    await until(events, "ready")
    os.kill(stand_in_server.started(tmp_path / "log")[0], signal.SIGKILL)
    assert [event async for event in events] == []
    assert process.returncode == 128 + signal.SIGKILL
    assert await process.wait() == 128 + signal.SIGKILL
    assert left(tmp_path / "log") == []


async def test_one_that_dies_at_its_start_says_why(launch, tmp_path):
    process = await launch("dies").start()
    with pytest.raises(AssertionError, match="it ended before ready"):
        await until(process.events(), "ready")
    assert await process.wait() == 1
    cause, *_ = process.last_words().splitlines()
    assert cause == "(EngineCore pid=1) ValueError: No available memory for the cache blocks."
    assert left(tmp_path / "log") == []


async def test_a_deaf_one_goes_when_its_time_is_up(launch, tmp_path):
    process = await launch("deaf").start()
    await until(process.events(), "ready")
    assert await process.stop(0.2) == 128 + signal.SIGKILL
    assert left(tmp_path / "log") == []


async def test_a_deaf_one_goes_at_once_when_it_must(launch, tmp_path):
    process = await launch("deaf").start()
    await until(process.events(), "ready")
    assert await process.stop(WAIT_S, at_once=True) == 128 + signal.SIGKILL
    assert left(tmp_path / "log") == []


async def test_one_that_writes_much_still_gets_ready(launch, tmp_path):
    process = await launch("noisy").start()
    seen = await until(process.events(), "ready")
    assert "import" in seen[-1]["stages_s"]
    assert (tmp_path / "log").stat().st_size > 20_000_000
    await process.kill()
    assert left(tmp_path / "log") == []


async def test_one_without_a_token_is_not_ready(launch, tmp_path):
    process = await launch("mute").start()
    events = process.events()
    await until(events, "listening")
    while (event := await anext(events))["event"] == "stage" and event["stage"] != "warm-up":
        pass
    assert event["stage"] == "warm-up"
    os.kill(stand_in_server.started(tmp_path / "log")[0], signal.SIGKILL)
    assert [one async for one in events] == []
    assert left(tmp_path / "log") == []


async def test_when_its_shim_is_killed_all_of_it_ends(launch, tmp_path):
    process = await launch("deaf").start()
    await until(process.events(), "ready")
    family = [psutil.Process(pid) for pid in stand_in_server.started(tmp_path / "log")]
    os.kill(process._shim.pid, signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    _, alive = psutil.wait_procs(family, timeout=WAIT_S)
    assert alive == []


async def test_devices_are_its_own_through_all_its_lives(launch, tmp_path):
    lent = []

    def borrow():
        lent.append(Loan({"CUDA_VISIBLE_DEVICES": "3"}))
        return lent[-1]

    start = launch("dies", borrow)
    for _ in range(2):
        process = await start.start()
        await process.wait()
    assert "devices 3" in (tmp_path / "log").read_text()
    assert [one.is_open for one in lent] == [True]
    start.close()
    assert [one.is_open for one in lent] == [False]


async def test_without_devices_it_is_not_started(launch, tmp_path):
    def borrow():
        raise LaunchError("2 devices are needed, and 1 of 4 free")

    with pytest.raises(LaunchError, match="2 devices are needed"):
        await launch("", borrow).start()
    assert not (tmp_path / "log").exists()


async def test_only_this_lifes_error_counts(launch, tmp_path):
    (tmp_path / "log").write_text("OSError: of the life before\n")
    process = await launch("dies").start()
    await process.wait()
    assert "No available memory" in process.last_words().splitlines()[0]


@pytest.mark.skipif(sys.platform != "linux", reason="a port can be held on Linux only")
def test_a_port_that_is_held_is_nobody_elses_and_can_be_listened_on():
    held = _Port()
    try:
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", held.number))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            server.bind(("127.0.0.1", held.number))
            server.listen()
            with socket.create_connection(("127.0.0.1", held.number), timeout=WAIT_S):
                server.accept()[0].close()
    finally:
        held.close()
