"""`ridgeline status`: what runs, and why there are as many replicas as there are."""

import json

import pytest
from click.testing import CliRunner

from ridgeline.cli import ridgeline_command
from ridgeline.cli import status as module
from ridgeline.launch.running import Running

HERE = Running("acme", 7, "1", "http://127.0.0.1:8000", ("chat",), "/logs")
CHAT = {
    "model": "chat", "least": 0, "most": 4, "start_s": 3.0, "wanted": 2, "demand": 7,
    "reason": "up to 2: 7 requests, 4 a replica",
    "versions": [{"id": "aaa", "share": 1.0, "replicas": 2, "ready": 1, "leaving": 0}],
}  # fmt: skip
ROLLOUT = {
    "model": "chat", "phase": "canary", "old": {"id": "aaa"}, "new": {"id": "bbb"},
    "reason": "it answers as its reference",
}  # fmt: skip
SEEN = {
    "replicas": [{"id": "chat-0", "state": "ready", "in_flight": 3, "address": "http://x"}],
    "control": {"models": [CHAT], "rollouts": [ROLLOUT]},
}


@pytest.fixture
def run(monkeypatch):
    def run(seen, *options, platforms=(HERE,)):
        monkeypatch.setattr(module, "read", lambda: list(platforms))
        monkeypatch.setattr(module, "_look", lambda _: seen)
        return CliRunner().invoke(ridgeline_command, ["status", *options])

    return run


def test_replicas_are_shown_with_why_there_are_so_many(run) -> None:
    output = run(SEEN).output
    assert "chat-0" in output
    assert "chat: 1 of 2 replicas ready (0 to 4): up to 2: 7 requests, 4 a replica" in output
    assert "chat: canary, aaa to bbb: it answers as its reference" in output
    assert json.loads(run(SEEN, "--json").output)[0]["control"]["models"] == [CHAT]


def test_a_fixed_number_needs_no_reason(run) -> None:
    fixed = {**CHAT, "least": 2, "most": 2}
    output = run({**SEEN, "control": {"models": [fixed], "rollouts": []}}).output
    assert "chat: 1 of 2 replicas ready\n" in output


def test_a_gateway_without_a_control_plane_or_an_answer(run) -> None:
    assert "chat-0" in run({**SEEN, "control": {}}).output
    assert "does not answer" in run({}).output


def test_nothing_runs(run) -> None:
    result = run({}, platforms=())
    assert (result.exit_code, "ridgeline up" in result.output) == (1, True)
