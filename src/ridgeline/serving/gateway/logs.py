"""The gateway's log: one line of JSON for each request that ended, and for each thing to know.

A line says who, what, where and how long, never a secret (`redact`), and no prompt unless that was
asked for. The loop only appends to a list; a thread of the log's own writes ten times a second, so
a slow disk costs lines (they are counted), never latency. A killed process loses the last tenth of
a second; the ledger, not the log, is what money rests on.
"""

import fcntl
import json
import logging
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from xxhash import xxh3_64_hexdigest

from ridgeline.serving.gateway.prompt_blocks import as_logged
from ridgeline.serving.gateway.record import MOST_TEXT_BYTES, Exchange
from ridgeline.serving.gateway.redact import Redactor

#: Lines that wait to be written; more are dropped.
MOST_WAITING = 20_000
#: A log file is set aside as FILE.1 at this size; the one before it goes.
MOST_FILE_BYTES = 256 * 1024 * 1024
_EVERY_S = 0.1
_STANDARD_ERROR = 2

_encoder = msgspec.json.Encoder(decimal_format="string")


class RequestLog:
    """Writes lines to a file, or to standard error where there is none. `close` writes the rest."""

    def __init__(self, file: Path | None, redactor: Redactor, *, prompts: bool = False) -> None:
        self.dropped = 0
        #: Told of each loss, from whatever thread.
        self.on_dropped: Callable[[int], None] = lambda _: None
        self._file = file
        self._redactor = redactor
        self.keeps_text = prompts
        self._waiting: deque[bytes] = deque()
        self._writing = threading.Lock()
        self._descriptor = -1
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="request log", daemon=True)

    def open(self) -> None:
        """Begin to write. Raises OSError where the file cannot be had."""
        self._reopen()
        self._thread.start()

    def close(self) -> None:
        """Write what waits, then stop."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.flush()
        if self._file is not None and self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def finished(self, exchange: Exchange) -> None:
        """A request has ended. What was asked and answered is left out unless that is logged."""
        line = request_line(exchange)
        if self.keeps_text:
            line["asked"] = exchange.asked[:MOST_TEXT_BYTES].decode(errors="replace")
            line["answered"] = bytes(exchange.told or b"").decode(errors="replace")
        self.write(line)

    def write(self, line: dict[str, Any]) -> None:
        """One line. Never waits."""
        if len(self._waiting) >= MOST_WAITING:
            self._drop(1)
            return
        self._waiting.append(self._redactor.line(_encoded(line)) + b"\n")

    def flush(self) -> None:
        """Write what waits, now."""
        with self._writing:
            lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if not lines or self._descriptor < 0:
                return
            try:
                self._write(b"".join(lines))
            except OSError:  # a full disk must not stop answers
                self._drop(len(lines))

    def _drop(self, lines: int) -> None:
        self.dropped += lines
        self.on_dropped(lines)

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self.flush()

    def _write(self, data: bytes) -> None:
        if self._file is not None:
            size = os.fstat(self._descriptor).st_size  # other workers write to it too
            if size and size + len(data) > MOST_FILE_BYTES:
                self._set_aside(self._file)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def _set_aside(self, file: Path) -> None:
        """Begin a new file, unless another worker has done so already."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)  # let go of when it is closed
        if _is_open_as(self._descriptor, file):
            file.replace(file.with_name(f"{file.name}.1"))
        os.close(self._descriptor)
        self._descriptor = -1
        self._reopen()

    def _reopen(self) -> None:
        if self._file is None:
            self._descriptor = _STANDARD_ERROR
            return
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self._file, flags, 0o600)  # it says who asked what


def _is_open_as(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def _encoded(line: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(line)
    except UnicodeEncodeError:  # half a surrogate pair, as a header's bytes can become
        return json.dumps(line, default=str).encode()


def request_line(exchange: Exchange) -> dict[str, Any]:
    """What is told of a request; times in seconds, money as text."""
    return {
        "event": "request",
        "at_unix_s": exchange.started_unix_s,
        "request_id": exchange.id,
        "client_id": exchange.client_id,
        "tenant": exchange.tenant,
        "key_id": exchange.key_id,
        "class": exchange.priority_class,
        "endpoint": exchange.endpoint,
        "model": exchange.model,
        "replica": exchange.replica,
        "status": exchange.status,
        "stream": exchange.stream,
        "retries": exchange.retries,
        "resumed": exchange.resumed,
        "input_tokens": exchange.prompt_tokens,
        "cached_tokens": exchange.cached_tokens,
        "output_tokens": exchange.output_tokens,
        "usd": format(exchange.usd, "f"),
        "basis": exchange.basis,
        "e2e_s": exchange.e2e_s,
        "ttft_s": exchange.ttft_s,
        "split_s": exchange.split_s(),
        "rule": exchange.rule,
        "reasons": exchange.reasons,
        "session": xxh3_64_hexdigest(exchange.session.encode()) if exchange.session else "",
        "prefix": as_logged(exchange.hashes),
        "expected_tokens": exchange.expected_tokens,
        "error": exchange.error[:300],
    }


class JsonHandler(logging.Handler):
    """Python's own log records, ours and our libraries', as lines of the same log."""

    def __init__(self, log: RequestLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One record; an exception with its traceback, redacted as everything is."""
        try:
            line: dict[str, Any] = {
                "event": "log",
                "at_unix_s": record.created,
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": record.getMessage(),
            }
            if record.exc_info:
                line["exception"] = "".join(traceback.format_exception(*record.exc_info))
            self._log.write(line)
        except Exception:  # as `logging` asks of a handler: to log must never stop the work
            self.handleError(record)


def log_to(log: RequestLog) -> JsonHandler:
    """From now on warnings of every library, and what Ridgeline says, go to this log.

    `logging.getLogger().removeHandler` ends it. Access logs of the server are not wanted: a
    request has its line.
    """
    handler = JsonHandler(log)
    logging.getLogger().addHandler(handler)
    logging.getLogger("ridgeline").setLevel(logging.INFO)
    return handler
