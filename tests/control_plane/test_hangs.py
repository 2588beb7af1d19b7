"""A replica that is stopped, not dead: the others answer, it is ended and started again."""

import signal
from pathlib import Path

import pytest
from cp_up import Up, up

SPEC = """
models:
  - name: m
    engine: {kind: fake, step: 10ms, max_seqs: 8, loading: 300ms}
    replicas: {min: 2}
    routing: {policy: round-robin}
gateway: {listen: "127.0.0.1:0"}
"""
NEVER = """
models:
  - name: m
    engine: {kind: fake, loading: 3600s}
    replicas: {min: 1, start_timeout: 3s}
gateway: {listen: "127.0.0.1:0"}
"""


@pytest.mark.slow
async def test_a_hung_replica_is_ended_and_started_again(tmp_path: Path) -> None:
    """About a minute: the gateway's patience, and then the controller's."""
    async with up(tmp_path, "hangs", SPEC) as it:
        await it.until_ready(2)
        hung = it.process_of("m-1")
        assert hung is not None
        hung.send_signal(signal.SIGSTOP)
        await it.until_states(lambda states: states.get("m-1") == "down")
        for _ in range(4):
            it.ask(5)
        assert await it.until_ended() == ["done"] * 4
        await it.until(lambda: "it hangs" in it.log.read_text())
        await it.until_ready(2)
        anew = it.process_of("m-1")
        assert anew is not None
        assert anew.pid != hung.pid
        assert await it.interrupt() == 0, it.log.read_text()
        assert await it.left_over(1.0) == []


async def test_a_start_that_never_ends_is_ended(tmp_path: Path) -> None:
    async with up(tmp_path, "never", NEVER) as it:
        process: Up = it
        assert process.process is not None
        assert await process.process.wait() == 2
        assert "was not ready after 3 s" in it.log.read_text()
        assert "start_timeout" in it.log.read_text()
        assert await it.left_over(1.0) == []
