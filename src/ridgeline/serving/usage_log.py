"""A replica's durable count of tokens: what it has generated for whom, readable after kill -9.

The law of this file: **durable ≥ delivered**. A step's counts are written before its tokens can
leave for a client, so that whoever settles an account afterwards never finds less than a client
got. Ridgeline's engine and the fake replica write one, and serve it at `GET /usage/{request id}`.

A ring of records of one size in one file; a request has one record, overwritten in place:

    header │ record 0 │ record 1 │ ... │ record `requests` - 1 │   then again record 0, the oldest

What is written is in the kernel's hands and outlives the process; nothing is flushed to the disk,
so a loss of power may cost the last seconds. Requests that were running when a process died are
finished when the next one opens its log: nobody generates for them any more.
"""

import io
import logging
import mmap
import os
import re
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ridgeline.errors import LaunchError

_LOG = logging.getLogger(__name__)
_MAGIC = b"ridgeline usage 1\n"
_HEADER_BYTES = 64
#: Serial number (from 1), Unix time, tokens: prompt, cached, completion; finished, id's length, id.
_RECORD = struct.Struct("<QdIIIBB128s")
_RECORD_BYTES = 160
_ID_BYTES = 128


class Usage(msgspec.Struct, frozen=True):
    """One request's tokens, as `GET /usage/{request id}` tells them."""

    request_id: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finished: bool


class Entry:
    """A running request's record: whoever generates counts here, then calls `UsageLog.write`."""

    __slots__ = ("cached_tokens", "completion_tokens", "finished", "key", "prompt_tokens",
                 "serial", "time_s")  # fmt: skip

    def __init__(self, serial: int, key: bytes, prompt_tokens: int) -> None:
        self.serial = serial
        self.key = key
        self.time_s = time.time()
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.finished = False


class UsageLog:
    """The log of one replica, the only one that writes into `folder`.

    Without a folder it lives in memory and ends with the process. It keeps the last `requests`
    requests. Where the disk is full it says so once, counts what it could not write (`failures`)
    and lets the answers go on: then the count in memory of this process is right, the file is not.
    Raises LaunchError where the folder cannot be written or another process logs there.
    """

    def __init__(self, folder: Path | None, *, requests: int = 1_000_000) -> None:
        assert requests > 0, requests
        self._requests = requests
        self.failures = 0
        self._complained = False
        self._serial = 0
        self._serials: dict[bytes, int] = {}
        self._running: dict[int, Entry] = {}
        self._file: io.FileIO | io.BytesIO = io.BytesIO() if folder is None else _open(folder)
        if folder is not None:
            self._read_back()

    def begin(self, request_id: str, prompt_tokens: int, resumed_tokens: int = 0) -> Entry:
        """A new request's record; where an id comes again, its newest request counts.

        `resumed_tokens` of its answer were said elsewhere, and count from the first moment on.
        """
        self._serial += 1
        key = request_id.encode()[:_ID_BYTES]
        entry = Entry(self._serial, key, prompt_tokens)
        entry.completion_tokens = resumed_tokens
        self._forget(self._serial - self._requests)
        self._serials[key] = self._serial
        self._running[self._serial] = entry
        self.write((entry,))
        return entry

    def write(self, entries: Iterable[Entry]) -> None:
        """Make these counts durable. Call it before their tokens are sent."""
        try:
            for entry in entries:
                if entry.serial + self._requests > self._serial:  # else its record is another's now
                    self._file.seek(self._offset(entry.serial))
                    self._file.write(_packed(entry))
                if entry.finished:  # a count that could not be written is told from memory
                    self._running.pop(entry.serial, None)
        except OSError as error:
            self._failed(error)

    def end(self, entry: Entry) -> None:
        """No more tokens come for it."""
        entry.finished = True
        self.write((entry,))

    def find(self, request_id: str) -> Usage | None:
        """What a request has used so far; None where it is unknown (or too long ago)."""
        serial = self._serials.get(request_id.encode()[:_ID_BYTES])
        if serial is None:
            return None
        entry = self._running.get(serial) or self._read(serial)
        return _usage(entry) if entry is not None else None

    def close(self) -> None:
        """Give the folder free."""
        self._file.close()

    def _offset(self, serial: int) -> int:
        return _HEADER_BYTES + (serial - 1) % self._requests * _RECORD_BYTES

    def _read(self, serial: int) -> Entry | None:
        try:
            self._file.seek(self._offset(serial))
            entry = _unpacked(self._file.read(_RECORD_BYTES))
        except OSError as error:
            self._failed(error)
            return None
        return entry if entry is not None and entry.serial == serial else None

    def _forget(self, serial: int) -> None:
        """The record of this serial number is about to be overwritten."""
        if serial < 1:
            return
        old = self._running.pop(serial, None) or self._read(serial)
        if old is not None and self._serials.get(old.key) == serial:
            del self._serials[old.key]

    def _read_back(self) -> None:
        """Index what an earlier process wrote; what it left running has ended with it."""
        self._file.seek(_HEADER_BYTES)
        data = self._file.readall() if isinstance(self._file, io.FileIO) else b""
        found: list[Entry] = []
        for start in range(0, len(data), _RECORD_BYTES):
            entry = _unpacked(data[start : start + _RECORD_BYTES])
            if entry is not None:
                found.append(entry)
        found.sort(key=lambda entry: entry.serial)
        for entry in found:
            self._serials[entry.key] = self._serial = entry.serial
        for entry in found:
            if not entry.finished:
                self.end(entry)

    def _failed(self, error: OSError) -> None:
        self.failures += 1
        if not self._complained:
            self._complained = True
            _LOG.error("the usage log cannot be written, answers go on: %s", error)


class PastLogs:
    """The logs below a folder, as files: for replicas that are not there to be asked."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, replica: str, request_id: str) -> Usage | None:
        """What a replica's log has of a request; None where there is neither."""
        key = request_id.encode()[:_ID_BYTES]
        try:
            with (self._root / in_one_folder(replica) / "usage.log").open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # ValueError: an empty file
            return None
        with data:
            found = [entry for entry in _having(data, key) if entry.key == key]
        newest = max(found, key=lambda entry: entry.serial, default=None)
        return None if newest is None else _usage(newest)


def in_one_folder(name: str) -> str:
    """A name as a file's: `org/model` and worse must not lead elsewhere."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")


def _having(data: mmap.mmap, key: bytes) -> Iterator[Entry]:
    """Every record in which these bytes stand."""
    at = data.find(key, _HEADER_BYTES) if key else -1
    while at >= 0:
        start = at - (at - _HEADER_BYTES) % _RECORD_BYTES
        entry = _unpacked(data[start : start + _RECORD_BYTES])
        if entry is not None:
            yield entry
        at = data.find(key, start + _RECORD_BYTES)


def _open(folder: Path) -> io.FileIO:
    """The log's file, locked for this process, with its header."""
    path = folder / "usage.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    except OSError as error:
        raise LaunchError(
            f"the usage log cannot be opened: {error.strerror}",
            where=str(path),
            remedy="a folder that this user may write",
        ) from error
    _lock(file, path)
    head = file.read(len(_MAGIC))
    if not head:
        file.write(_MAGIC.ljust(_HEADER_BYTES))
    elif head != _MAGIC:
        file.close()
        raise LaunchError(
            "is no usage log", where=str(path), remedy="another folder, or remove the file"
        )
    return file


def _lock(file: io.FileIO, path: Path) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise LaunchError(
            "another replica writes its usage log there",
            where=str(path),
            remedy="a folder for each replica",
        ) from error


def _packed(entry: Entry) -> bytes:
    return _RECORD.pack(
        entry.serial,
        entry.time_s,
        entry.prompt_tokens,
        entry.cached_tokens,
        entry.completion_tokens,
        entry.finished,
        len(entry.key),
        entry.key,
    )


def _unpacked(record: bytes) -> Entry | None:
    """None for a torn or an empty record."""
    if len(record) < _RECORD.size:
        return None
    serial, time_s, prompt, cached, completion, finished, length, key = _RECORD.unpack(
        record[: _RECORD.size]
    )
    if not serial:
        return None
    entry = Entry(serial, key[:length], prompt)
    entry.time_s = time_s
    entry.cached_tokens, entry.completion_tokens, entry.finished = (
        cached,
        completion,
        bool(finished),
    )
    return entry


def _usage(entry: Entry) -> Usage:
    return Usage(
        entry.key.decode(errors="replace"),
        entry.prompt_tokens,
        entry.cached_tokens,
        entry.completion_tokens,
        entry.finished,
    )
