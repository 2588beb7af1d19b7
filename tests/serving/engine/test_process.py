"""The engine process: frames, its loop on a socket pair, and its death together with the front."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serving.engine.byte_model import write_byte_model
from tests.serving.engine.fronts import ask, front_process, stream
from tests.serving.engine.stub_engine import Stub

from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.messages import (
    Abort,
    Add,
    FromEngine,
    Sampling,
    Stepped,
    Stop,
    ToEngine,
)
from ridgeline.serving.engine.process import Channel, Frames, frame, run

CONFIG = EngineConfig(model=Path("stub"))
SAY_HI = list(b"say:hi")


class Peer:
    """The front's end, in a test's hands."""

    def __init__(self, ours: socket.socket) -> None:
        self.socket = ours
        self._frames = Frames()
        self._waiting: list[bytes] = []
        self.socket.settimeout(10)

    def say(self, *messages: ToEngine) -> None:
        self.socket.sendall(frame(msgspec.msgpack.encode(messages)))

    def hear(self) -> FromEngine:
        while not self._waiting:
            data = self.socket.recv(65536)
            assert data, "the engine hung up"
            self._waiting += self._frames.feed(data)
        return msgspec.msgpack.decode(self._waiting.pop(0), type=FromEngine)


@pytest.fixture
def peers() -> Iterator[tuple[Peer, Channel]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Peer(ours), Channel(theirs)


@given(st.lists(st.binary(max_size=20), max_size=6), st.integers(1, 9))
def test_frames_do_not_depend_on_how_the_stream_was_cut(bodies: list[bytes], size: int) -> None:
    stream = b"".join(map(frame, bodies))
    frames = Frames()
    got = []
    for at in range(0, len(stream), size):
        got += frames.feed(stream[at : at + size])
    assert got == bodies


def test_receive_takes_all_that_waits_and_does_not_wait_for_more(
    peers: tuple[Peer, Channel],
) -> None:
    peer, channel = peers
    assert channel.receive(wait=False) == []
    peer.say(Abort("a"), Abort("b"))
    peer.say(Stop())
    assert channel.receive(wait=True) == [Abort("a"), Abort("b"), Stop()]


def test_receive_says_when_the_front_is_gone(peers: tuple[Peer, Channel]) -> None:
    peer, channel = peers
    peer.socket.close()
    with pytest.raises(EOFError):
        channel.receive(wait=True)


def test_one_message_a_step_until_stop(peers: tuple[Peer, Channel]) -> None:
    peer, channel = peers
    running = threading.Thread(target=run, args=(Stub(CONFIG), channel))
    running.start()
    peer.say(Add("r", SAY_HI, Sampling(max_tokens=2)))
    steps = [peer.hear(), peer.hear()]
    tokens = [
        output.tokens for step in steps if isinstance(step, Stepped) for output in step.outputs
    ]
    assert tokens == [[ord("h")], [ord("i")]]
    peer.say(Stop())
    running.join(10)
    assert not running.is_alive()


def test_an_abort_of_the_last_request_is_seen_in_the_gauges(peers: tuple[Peer, Channel]) -> None:
    peer, channel = peers
    running = threading.Thread(target=run, args=(Stub(CONFIG), channel))
    running.start()
    peer.say(Add("r", list(b"say:loop"), Sampling(max_tokens=10_000)))
    peer.hear()
    peer.say(Abort("r"))
    while (told := peer.hear()) and isinstance(told, Stepped) and told.stats.running:
        pass
    assert isinstance(told, Stepped)
    assert told.stats.running == 0
    peer.say(Stop())
    running.join(10)


def test_a_lost_front_ends_the_loop(peers: tuple[Peer, Channel]) -> None:
    peer, channel = peers
    peer.say(Add("r", list(b"say:loop"), Sampling(max_tokens=10_000)))
    peer.socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises((EOFError, ConnectionError)):
        run(Stub(CONFIG), channel)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_model(tmp_path_factory.mktemp("bytes"))


def test_kill_9_of_the_front_leaves_no_engine(model: Path) -> None:
    with front_process(model) as front:
        front.until("ready")
        engine = front.engine()
        with stream(front, "say:loop slow", max_tokens=50_000) as events:
            next(events)
            front.process.kill()
            engine.wait(10)


def test_kill_9_of_the_front_ends_an_engine_that_still_loads(model: Path) -> None:
    maker = "tests.serving.engine.stub_engine:forever_loading"
    with front_process(model, make_engine=maker) as front:
        front.until("stage")
        engine = front.engine()
        front.process.kill()
        engine.wait(10)


def test_kill_9_of_the_engine_ends_the_front_which_says_so(model: Path) -> None:
    with front_process(model) as front:
        front.until("ready")
        assert ask(f"{front.url}/health").status == 200
        with stream(front, "say:loop slow", max_tokens=50_000) as events:
            next(events)
            front.engine().kill()
            *_, last = events
            assert json.loads(last)["error"]["code"] == "engine_dead"
            health = ask(f"{front.url}/health")
            assert (health.status, health.json()) == (503, {"status": "lost"})
            assert ask(f"{front.url}/ready").status == 503
            late = ask(f"{front.url}/v1/completions", {"model": "stub", "prompt": "a"})
            assert late.json()["error"]["code"] == "engine_dead"
        assert front.process.wait(10) == 2
        assert "the engine process died (signal 9)" in front.stderr()


def test_an_engine_that_dies_in_a_step_ends_the_front(model: Path) -> None:
    with front_process(model) as front:
        front.until("ready")
        answer = ask(f"{front.url}/v1/completions", {"model": "stub", "prompt": "say:crash"})
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert front.process.wait(10) == 2
        assert "the engine process died (exit status 3)" in front.stderr()


@pytest.mark.parametrize(
    ("maker", "said"),
    [
        ("made_to_fail", "the weights are torn\n  try: download again"),
        ("never_ready", "the engine process died (exit status 7)"),
    ],
)
def test_an_engine_that_cannot_start_ends_the_front_with_its_reason(
    model: Path, maker: str, said: str
) -> None:
    maker = f"tests.serving.engine.stub_engine:{maker}"
    with front_process(model, make_engine=maker) as front:
        assert front.process.wait(20) == 2
        assert said in front.stderr()


def test_sigterm_lets_what_runs_finish_and_takes_nothing_new(model: Path) -> None:
    with front_process(model) as front:
        front.until("ready")
        with stream(front, "say:loop slow", max_tokens=1500) as events:
            next(events)
            front.terminate()
            while ask(f"{front.url}/ready").status == 200:
                pass
            assert ask(f"{front.url}/health").json() == {"status": "draining"}
            late = ask(f"{front.url}/v1/completions", {"model": "stub", "prompt": "a"})
            assert (late.status, late.headers["Retry-After"]) == (503, "1")
            assert late.json()["error"]["code"] == "shutting_down"
            *chunks, last, done = events
            assert json.loads(last)["choices"][0]["finish_reason"] == "length"
            assert done == "[DONE]"
            assert len(chunks) >= 1400
        assert front.process.wait(10) == 0
        assert front.stderr() == ""


def test_ctrl_c_for_the_whole_group_drains_too(model: Path) -> None:
    with front_process(model) as front:
        front.until("ready")
        with stream(front, "say:loop slow", max_tokens=200) as events:
            next(events)
            os.killpg(front.process.pid, signal.SIGINT)
            assert list(events)[-1] == "[DONE]"
        assert front.process.wait(10) == 0


@pytest.mark.parametrize("impatient", [True, False], ids=["second signal", "grace over"])
def test_what_outlasts_the_drain_is_told_so(model: Path, impatient: bool) -> None:
    with front_process(model, limits={"grace_s": 60 if impatient else 0.1}) as front:
        front.until("ready")
        with stream(front, "say:loop slow", max_tokens=90_000) as events:
            next(events)
            front.terminate()
            if impatient:
                while ask(f"{front.url}/ready").status == 200:
                    pass
                front.terminate()
            *_, last = events
            assert json.loads(last)["error"]["code"] == "shutting_down"
        assert front.process.wait(10) == 0


def test_sigterm_while_loading_ends_both(model: Path) -> None:
    maker = "tests.serving.engine.stub_engine:forever_loading"
    with front_process(model, make_engine=maker) as front:
        front.until("stage")
        waiting = ask(f"{front.url}/v1/completions", {"model": "stub", "prompt": "a"})
        assert (waiting.status, waiting.headers["Retry-After"]) == (503, "1")
        assert ask(f"{front.url}/health").json() == {"status": "loading"}
        assert ask(f"{front.url}/ready").status == 503
        engine = front.engine()
        front.terminate()
        assert front.process.wait(10) == 0
        engine.wait(10)


def test_a_taken_port_is_an_error_that_names_it(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with front_process(model, port=port) as front:
            assert front.process.wait(20) == 2
            assert f"127.0.0.1:{port}: cannot listen" in front.stderr()


def test_the_front_lives_without_torch(model: Path) -> None:
    with front_process(model) as front:
        front.until("ready")
        assert ask(f"{front.url}/v1/completions", {"model": "stub", "prompt": "a"}).status == 200
        maps = psutil.Process(front.process.pid).memory_maps()
        assert not [one.path for one in maps if "torch" in one.path]
