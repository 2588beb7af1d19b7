"""`ridgeline status`: what runs, and why there are as many replicas as there are."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner

from ridgeline.cli import ridgeline_command
from ridgeline.cli import status as module
from ridgeline.errors import SpecError
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
        look = module.Look(seen, "" if seen else "the gateway does not answer")
        monkeypatch.setattr(module, "_look", lambda *_: look)
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


@pytest.fixture
def gateway(monkeypatch):
    """One that tells its state to "s3cret", and is no gateway where somebody sends "odd"."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = self.headers.get("Authorization", "")
            codes = {"": 401, "Bearer users": 403, "Bearer broken": 500}
            self.send_response(codes.get(sent, 200))
            self.end_headers()
            self.wfile.write(json.dumps([] if sent == "Bearer odd" else SEEN).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    here = Running("acme", 7, "1", f"http://127.0.0.1:{server.server_port}", ("chat",), "/logs")
    monkeypatch.setattr(module, "read", lambda: [here])
    for name in ("RIDGELINE_ADMIN_KEY", "RIDGELINE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    yield
    server.shutdown()
    thread.join()
    server.server_close()


def asked(*options: str, **env: str) -> str:
    result = CliRunner(env=env).invoke(ridgeline_command, ["status", *options])
    if isinstance(result.exception, SpecError):
        raise result.exception
    assert result.exit_code == 0
    return result.output


@pytest.mark.usefixtures("gateway")
def test_a_gateway_with_tenants_is_shown_to_a_key_that_may_watch() -> None:
    assert "chat-0" in asked("--key-env", "MINE", MINE="s3cret")
    assert "chat-0" in asked(RIDGELINE_API_KEY="s3cret")
    assert "chat-0" in asked(RIDGELINE_ADMIN_KEY="s3cret", RIDGELINE_API_KEY="users")


@pytest.mark.usefixtures("gateway")
def test_what_keeps_a_gateway_from_telling_is_said() -> None:
    without = asked()
    assert "needs a key that may watch: --key-env" in without
    assert "does not answer" not in without
    assert "needs another key that may watch" in asked(RIDGELINE_API_KEY="users")
    assert "answers with status 500" in asked(RIDGELINE_API_KEY="broken")
    assert "no gateway" in asked(RIDGELINE_API_KEY="odd")
    (told,) = json.loads(asked("--json"))
    assert (told["answers"], "--key-env" in told["silent"]) == (False, True)
    with pytest.raises(SpecError, match="NONE is not set"):
        asked("--key-env", "NONE")


def test_a_gateway_that_is_gone_does_not_answer(monkeypatch) -> None:
    gone = Running("acme", 7, "1", "http://127.0.0.1:1", ("chat",), "/logs")
    monkeypatch.setattr(module, "read", lambda: [gone])
    assert "the gateway does not answer" in asked()
