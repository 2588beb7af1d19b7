"""The engine's usage log: whatever ends an answer, what was delivered is counted."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from default_model import SMOLLM2, needs_smollm2
from tests.serving.engine.fronts import FrontProcess, ask

from ridgeline.serving.usage_log import Usage, UsageLog

pytestmark = needs_smollm2

LONG = {"model": "m", "prompt": "Once upon a time", "max_tokens": 1500, "temperature": 0,
        "ignore_eos": True, "stream": True, "return_token_ids": True}  # fmt: skip


@contextmanager
def replica(log: Path) -> Iterator[FrontProcess]:
    argv = [sys.executable, "-m", "ridgeline", "serve", str(SMOLLM2), "--name", "m", "--port", "0",
            "--supervised", "--threads", "1", "--kv-cache", "100MB",
            "--usage-log", str(log)]  # fmt: skip
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
        front = FrontProcess(process)
        try:
            front.until("ready")
            yield front
        finally:
            process.kill()


def logged(log: Path, request_id: str) -> Usage:
    with closing(UsageLog(log)) as opened:
        found = opened.find(request_id)
    assert found is not None
    return found


def tokens_until_cut(front: FrontProcess, request_id: str, cut: Any, after: int = 20) -> int:
    """Stream until `after` tokens have come, `cut`, and count all that still comes."""
    request = Request(front.url + "/v1/completions", json.dumps(LONG).encode(),
                      {"X-Request-Id": request_id})  # fmt: skip
    tokens, is_cut = 0, False
    with suppress(OSError, HTTPException), urlopen(request, timeout=30) as stream:
        for line in stream:
            if not line.startswith(b"data: {"):
                continue
            choices = json.loads(line[6:]).get("choices", [])
            tokens += sum(len(choice["token_ids"]) for choice in choices)
            if tokens >= after and not is_cut:
                is_cut = True
                cut()
    return tokens


def test_kill_9_of_the_front_loses_no_delivered_token(tmp_path: Path) -> None:
    with replica(tmp_path) as front:
        pid = front.process.pid
        tokens = tokens_until_cut(front, "req-1", lambda: os.kill(pid, signal.SIGKILL))
        front.process.wait(20)
    used = logged(tmp_path, "req-1")
    assert used.finished
    assert used.prompt_tokens == 4
    assert 20 <= tokens <= used.completion_tokens < 1500


def test_kill_9_of_the_engine_loses_no_delivered_token(tmp_path: Path) -> None:
    with replica(tmp_path) as front:
        tokens = tokens_until_cut(front, "req-1", front.engine().kill)
        front.process.wait(20)
    used = logged(tmp_path, "req-1")
    assert used.finished
    assert 20 <= tokens <= used.completion_tokens < 1500


def test_a_client_that_leaves_has_used_what_was_generated_for_it(tmp_path: Path) -> None:
    with replica(tmp_path) as front:
        request = Request(front.url + "/v1/completions", json.dumps(LONG).encode(),
                          {"X-Request-Id": "req-1"})  # fmt: skip
        with urlopen(request, timeout=30) as stream:
            lines = [stream.readline() for _ in range(20)]
        while not (used := ask(front.url + "/usage/req-1").json())["finished"]:
            pass
        assert len(lines) / 2 <= used["completion_tokens"] < 1500
        assert b"ridgeline:usage_log_failures_total" in ask(front.url + "/metrics").body
