"""`ridgeline fake-replica` as a process: it announces itself, dies on demand, leaves with us."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from typing import Any
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from ridgeline.cli import ridgeline_command
from ridgeline.errors import SpecError

ASK = {"model": "fake", "prompt": "tell me something", "max_tokens": 50}


@contextmanager
def replica(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A ready one on a free port, and its address."""
    argv = [sys.executable, "-m", "ridgeline", "fake-replica", "--supervised", "--port", "0"]
    with subprocess.Popen(
        [*argv, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            url = _event(process, "listening")["url"]
            _event(process, "ready")
            yield process, url
        finally:
            process.kill()


def _event(process: subprocess.Popen[str], name: str) -> dict[str, Any]:
    assert process.stdout is not None
    while True:
        event: dict[str, Any] = json.loads(process.stdout.readline())
        if event["event"] != "stage":
            assert event["event"] == name
            return event


def ask(url: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url + path, data, headers), timeout=20) as answer:
        return json.loads(answer.read())


def test_it_times_by_the_catalog_and_answers():
    with replica("--model", "llama-3.1-8b", "--accelerator", "h100-sxm") as (_, url):
        answer = ask(url, "/v1/completions", {**ASK, "model": "llama-3.1-8b", "max_tokens": 3})
        assert answer["usage"]["completion_tokens"] == 3


def test_it_drains_and_leaves_when_its_parent_is_gone():
    with replica() as (process, url):
        assert ask(url, "/ready") == {"status": "ready"}
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0


def test_it_leaves_on_sigterm():
    with replica() as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_after_its_death_the_next_one_knows_what_was_delivered(tmp_path):
    log = ("--usage-log", str(tmp_path), "--time-scale", "0")
    with replica(*log, "--fail", "die,after=10") as (process, url):
        delivered = _events_of(url, "req-7")
        assert process.wait(20) == 137
        assert delivered >= 10
    with replica(*log) as (_, url):
        used = ask(url, "/usage/req-7")
        assert used["finished"]
        assert used["completion_tokens"] >= delivered


def _events_of(url: str, request_id: str) -> int:
    """The tokens of a stream that breaks."""
    body = json.dumps({**ASK, "stream": True}).encode()
    request = Request(url + "/v1/completions", body, {"X-Request-Id": request_id})
    events = 0
    with suppress(OSError, HTTPException), urlopen(request, timeout=20) as stream:
        for line in stream:
            assert b"DONE" not in line
            events += line.startswith(b"data: {")
    return events


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (["--model", "llama-3.1-8b"], "--model and --accelerator"),
        (["--fail", "explode"], "explode"),
        (["--prefill-tokens-per-s", "0"], "--prefill-tokens-per-s"),
        (["--host", "0.0.0.0"], "--host"),
        (["--api-key-env", "NO_SUCH_VARIABLE"], "--api-key-env"),
    ],
)
def test_what_cannot_be_meant_is_said(options, where):
    result = CliRunner().invoke(ridgeline_command, ["fake-replica", *options])
    assert isinstance(result.exception, SpecError)
    assert result.exception.where == where
