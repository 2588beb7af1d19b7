"""Outputs find the choice they belong to; what nobody waits for is aborted."""

import asyncio

import msgspec
import pytest

from ridgeline.serving.engine.link import EngineLink, Generation
from ridgeline.serving.engine.messages import (
    Abort,
    Add,
    FromEngine,
    Output,
    Sampling,
    Stats,
    Stepped,
    ToEngine,
)
from ridgeline.serving.engine.process import Frames, frame
from ridgeline.serving.openai import ApiError
from ridgeline.serving.usage_log import Usage, UsageLog

RULES = Sampling(max_tokens=9)


class Wire(asyncio.Transport):
    """Keeps what the link sends."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[list[ToEngine]] = []
        self._cut = Frames()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.frames += [
            msgspec.msgpack.decode(one, type=list[ToEngine]) for one in self._cut.feed(bytes(data))
        ]

    def close(self) -> None:
        pass


def linked() -> tuple[EngineLink, Wire]:
    link, wire = EngineLink(), Wire()
    link.connection_made(wire)
    return link, wire


def two_prompts() -> Generation:
    return Generation([Add("a", [1], RULES, n=2), Add("b", [2], RULES, n=2)])


def stepped(*outputs: Output) -> bytes:
    return told(Stepped(list(outputs), Stats(running=1)))


def told(message: FromEngine) -> bytes:
    return frame(msgspec.msgpack.encode(message))


async def turn() -> None:
    """One turn of the event loop, in which the link sends."""
    await asyncio.sleep(0)


async def test_what_is_said_in_one_turn_goes_out_as_one_frame() -> None:
    link, wire = linked()
    generation = two_prompts()
    link.ask(generation)
    await turn()
    link.end_choice(generation, 1)
    link.close(generation)
    await turn()
    assert wire.frames == [generation.adds, [Abort("a", 1), Abort("a"), Abort("b")]]


async def test_choices_are_numbered_over_all_prompts() -> None:
    link, _ = linked()
    generation = two_prompts()
    link.ask(generation)
    link.data_received(stepped(Output("b", 1, [7]), Output("a", 0, [8])))
    arrived = await generation.arrivals()
    assert [(choice, output.tokens) for choice, output in arrived] == [(3, [7]), (0, [8])]
    assert link.stats.running == 1


async def test_an_output_under_way_while_its_choice_ended_is_dropped() -> None:
    link, wire = linked()
    generation = Generation([Add("a", [1], RULES, n=2)])
    link.ask(generation)
    link.end_choice(generation, 0)
    link.end_choice(generation, 0)
    link.data_received(stepped(Output("a", 0, [7], finish="length"), Output("a", 1, [8])))
    assert [choice for choice, _ in await generation.arrivals()] == [1]
    await turn()
    assert wire.frames[0][1:] == [Abort("a", 0)]


async def test_a_request_is_forgotten_when_its_last_choice_ends_however() -> None:
    link, wire = linked()
    generation = two_prompts()
    link.ask(generation)
    finished = [Output(name, at, [7], finish="stop") for name in "ab" for at in range(2)]
    link.data_received(stepped(*finished[:3]))
    assert link.requests == 1
    link.end_choice(generation, 3)
    assert link.requests == 0
    link.close(generation)
    await turn()
    assert wire.frames[0][2:] == [Abort("b", 1)]


async def test_a_lost_engine_fails_everyone_who_waits_and_everyone_later() -> None:
    link, _ = linked()
    waiting = two_prompts()
    link.ask(waiting)
    arrivals = asyncio.create_task(waiting.arrivals())
    await turn()
    link.connection_lost(None)
    with pytest.raises(ApiError) as caught:
        await arrivals
    assert caught.value.code == "engine_dead"
    with pytest.raises(ApiError):
        link.ask(Generation([Add("c", [1], RULES)]))
    assert await link.started is None


async def test_outputs_that_came_before_the_end_are_still_read() -> None:
    link, _ = linked()
    generation = two_prompts()
    link.ask(generation)
    link.data_received(stepped(Output("a", 0, [7])))
    link.connection_lost(None)
    assert len(await generation.arrivals()) == 1
    with pytest.raises(ApiError):
        await generation.arrivals()


async def test_tokens_are_in_the_usage_log_before_whoever_sends_them_runs() -> None:
    log = UsageLog(None)
    link = EngineLink(log)
    link.connection_made(Wire())
    generation = Generation([Add("a", [1], RULES), Add("b", [2], RULES)], log.begin("req-1", 2))
    link.ask(generation)
    counts: list[int] = []

    async def send() -> None:
        while True:
            await generation.arrivals()
            used = log.find("req-1")
            assert used is not None
            counts.append(used.completion_tokens)

    sending = asyncio.create_task(send())
    await turn()
    link.data_received(stepped(Output("a", 0, [7], cached_tokens=1), Output("b", 0, [8, 9])))
    await turn()
    link.data_received(stepped(Output("a", 0, [7])))
    await turn()
    assert counts == [3, 4]
    link.close(generation)
    sending.cancel()
    assert log.find("req-1") == Usage("req-1", 2, 1, 4, finished=True)


async def test_a_request_that_the_engine_never_got_has_used_nothing() -> None:
    log = UsageLog(None)
    link = EngineLink(log)
    link.connection_lost(None)
    with pytest.raises(ApiError):
        link.ask(Generation([Add("a", [1], RULES)], log.begin("req-1", 1)))
    assert log.find("req-1") == Usage("req-1", 1, 0, 0, finished=True)
