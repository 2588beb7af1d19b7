"""A program that behaves as vLLM does, without weights; run as `vllm serve MODEL --port N ...`.

It imports slowly, starts children (one in a session of its own, one that outlives its parent),
writes vLLM's log lines, says 503 on /health until it is up, and answers one token. `STAND_IN` in
its environment makes it worse: dies, deaf, noisy, mute.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WORDS = os.environ.get("STAND_IN", "").split()
SLEEPER = "import signal, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.pause()"
#: It starts a sleeper and leaves: the sleeper has no parent of ours any more.
LEAVES_ONE = (
    "import subprocess, sys\n"
    "one = subprocess.Popen([sys.executable, '-c', sys.argv[1]], start_new_session=True)\n"
    "print('started', one.pid, file=sys.stderr, flush=True)"
)


def executable(folder: Path, name: str = "vllm") -> Path:
    """A program of that name in a folder, which is this file."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\n" + Path(__file__).read_text(encoding="utf-8"))
    path.chmod(0o700)
    return path


def started(log: Path) -> list[int]:
    """The process ids that a stand-in told its log of, its own first."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("started ")]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


class Answers(BaseHTTPRequestHandler):
    is_up = False

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self.answer(200, {"data": [{"id": option("--served-model-name")}]})
        elif self.path == "/health":
            self.answer(200 if Answers.is_up else 503, {})
        else:
            self.answer(404, {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if "mute" in WORDS:
            self.answer(500, {"error": {"message": "no token today"}})
            return
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "text": "a", "finish_reason": "length"}
        choice["message"] = {"role": "assistant", "content": "a"}
        name = option("--served-model-name")
        self.answer(200, {"id": "x", "model": name, "choices": [choice], "usage": usage})

    def answer(self, status: int, body: dict[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    say(f"started {os.getpid()}")
    say("argv " + json.dumps(sys.argv[1:]))
    say(f"devices {os.environ.get('CUDA_VISIBLE_DEVICES')}")
    if "deaf" in WORDS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(0.2)  # imports
    if "noisy" in WORDS:
        for _ in range(20_000):
            say("x" * 1000)
    for apart in (False, True):
        child = subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=apart)
        say(f"started {child.pid}")
    subprocess.run([sys.executable, "-c", LEAVES_ONE, SLEEPER], check=True)
    say("INFO Starting to load model m...")
    if "dies" in WORDS:
        say("(EngineCore pid=1) ValueError: No available memory for the cache blocks.")
        failed = "Engine core initialization failed. See root cause above."
        say(f"(APIServer pid=2) RuntimeError: {failed}")
        sys.exit(1)
    server = ThreadingHTTPServer(("127.0.0.1", int(option("--port"))), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    time.sleep(0.2)
    say("INFO Loading weights took 0.20 seconds")
    time.sleep(0.2)
    Answers.is_up = True
    signal.pause()


if __name__ == "__main__":
    main()
