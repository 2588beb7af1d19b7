"""`ridgeline up` with a model that sleeps: woken, grown, asleep again, and nothing left behind."""

from pathlib import Path

import pytest
from cp_up import Up, up

SPEC = """
models:
  - name: m
    engine: {{kind: fake, step: 10ms, max_seqs: 8, loading: 300ms}}
    replicas:
      min: 0
      max: 4
      scale:
        {{target_per_replica: 2, up: {{by: 4, every: 4s}}, down: {{stabilise: 2s}}, zero_after: 2s}}
gateway: {{listen: "127.0.0.1:0", workers: {workers}}}
"""


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
async def test_it_wakes_grows_and_sleeps_again(workers: int, tmp_path: Path) -> None:
    async with up(tmp_path, "sleeper", SPEC.format(workers=workers)) as it:
        assert await it.states() == {}
        it.ask(5)
        assert await it.until_ended() == ["done"]
        await it.until_states(lambda states: list(states.values()) == ["ready"])
        for _ in range(8):
            it.ask(600)
        await it.until_ready(4)
        assert set(await it.until_ended()) == {"done"}
        await it.until_states(lambda states: not states)
        decided = it.decided()
        assert decided[0].before == decided[-1].replicas == 0
        assert max(one.replicas for one in decided) == 4
        await _leaves_nothing(it)


async def _leaves_nothing(it: Up) -> None:
    assert await it.interrupt() == 0, it.log.read_text()
    assert await it.left_over(1.0) == []
    assert it.reserved() == []


async def test_ctrl_c_lets_a_held_request_have_its_replica(tmp_path: Path) -> None:
    async with up(tmp_path, "sleeper", SPEC.format(workers=1)) as it:
        stream = it.ask(5)
        await it.until(lambda: stream.began_s)
        while not (await it.status())["held"]:
            pass
        await _leaves_nothing(it)
        assert stream.end == "done"


async def test_kill_9_leaves_no_process(tmp_path: Path) -> None:
    workers = 2  # of one worker it is tested with the chaos
    async with up(tmp_path, "sleeper", SPEC.format(workers=workers)) as it:
        for _ in range(6):
            it.ask(3_000)
        await it.until_ready(3)
        assert len(it.look_around()) == 3 + workers
        await it.kill()
        assert await it.left_over(5.0) == []
        assert set(await it.until_ended()) <= {"broken", "error event"}
