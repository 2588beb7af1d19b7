import asyncio
from collections.abc import Callable

import pytest

from ridgeline.serving.bench.drive import Driven, Loop, drive
from ridgeline.serving.bench.sample import Answer, Sample
from ridgeline.workload import Request


def requests(*at_s: float) -> list[Request]:
    return [Request(moment_s, 10, 5) for moment_s in at_s]


def taking(*took_s: float) -> Callable[[int, Request, float], object]:
    """A server whose answers take these times, in turn."""

    async def send(index: int, request: Request, origin_s: float) -> Answer:
        loop = asyncio.get_running_loop()
        sent_s = loop.time() - origin_s
        await asyncio.sleep(took_s[index % len(took_s)])
        ended_s = loop.time() - origin_s
        return Answer(sent_s, ended_s, (ended_s,), 10, 1)

    return send


async def run(made: list[Request], send, loop: Loop, **options) -> Driven:
    now = asyncio.get_running_loop().time
    return await drive(made, send, loop, now=now, **options)


def sent(driven: Driven) -> list[float]:
    return [round(sample.answer.sent_s, 6) for sample in driven.samples]


def test_an_open_loop_sends_on_time_however_slow_the_server_is(virtually):
    driven = virtually(run(requests(0.5, 1.0, 1.5, 4.0), taking(100.0), Loop()))
    assert sent(driven) == [0.5, 1.0, 1.5, 4.0]
    assert driven.duration_s == pytest.approx(104.0)
    assert driven.strain.send_late_s == pytest.approx(0.0, abs=1e-6)


def test_an_open_loop_that_is_held_up_sends_late_and_says_so(virtually):
    async def held_up() -> Driven:
        loop = asyncio.get_running_loop()
        loop.call_later(0.9, lambda: setattr(loop, "now_s", 2.0))  # nothing runs until then
        return await run(requests(0.5, 1.0, 4.0), taking(0.1), Loop())

    driven = virtually(held_up())
    assert [round(s.lag_s, 6) for s in driven.samples] == [0.0, 1.0, 0.0]
    assert driven.strain.send_late_s == pytest.approx(0.98)


def test_a_closed_loop_sends_when_a_worker_is_free(virtually):
    driven = virtually(run(requests(0, 0, 0, 0, 0), taking(1.0, 3.0), Loop(workers=2)))
    assert sent(driven) == [0.0, 0.0, 1.0, 2.0, 3.0]
    assert all(sample.lag_s == 0 for sample in driven.samples)


def test_a_closed_loop_starts_nothing_after_its_time_and_finishes_what_runs(virtually):
    endless = requests(*[0] * 1000)
    driven = virtually(run(endless, taking(1.0), Loop(workers=3, duration_s=2.5)))
    assert len(driven.samples) == 9
    assert driven.duration_s == pytest.approx(3.0)


def test_samples_come_in_the_order_of_sending_and_are_told_as_they_come(virtually):
    told: list[Sample] = []
    made = requests(0.0, 0.1, 0.2)
    driven = virtually(run(made, taking(5.0, 1.0, 3.0), Loop(), seen=told.append))
    assert [sample.index for sample in driven.samples] == [0, 1, 2]
    assert [sample.index for sample in told] == [1, 2, 0]


@pytest.mark.parametrize("loop", [Loop(), Loop(workers=2)])
def test_stopping_keeps_what_was_answered_and_counts_what_was_not(virtually, loop):
    async def stopped() -> Driven:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(2.4, stop.set)
        return await run(requests(0.0, 0.0, 2.0, 9.0), taking(1.0, 1.5, 9.0), loop, stop=stop)

    driven = virtually(stopped())
    assert driven.interrupted
    assert len(driven.samples) == 2
    assert driven.unfinished == (1 if loop.workers is None else 2)


def test_our_own_mistakes_are_not_swallowed(virtually):
    async def wrong(index: int, request: Request, origin_s: float) -> Answer:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup):
        virtually(run(requests(0.0), wrong, Loop()))


def test_nothing_is_left_running(virtually):
    async def tasks_after() -> int:
        await run(requests(0.0, 1.0), taking(1.0), Loop())
        return len(asyncio.all_tasks())

    assert virtually(tasks_after()) == 1
