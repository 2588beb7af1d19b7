import errno
import io
import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import LaunchError
from ridgeline.serving.usage_log import PastLogs, Usage, UsageLog

REQUEST = Usage("req-1", 7, 3, 5, finished=False)


def begun(log: UsageLog, request_id: str = "req-1", *, tokens: int = 5) -> None:
    entry = log.begin(request_id, 7)
    entry.cached_tokens = 3
    entry.completion_tokens = tokens
    log.write((entry,))


def test_a_count_is_found_by_its_request() -> None:
    log = UsageLog(None)
    begun(log)
    assert log.find("req-1") == REQUEST
    assert log.find("req-2") is None


def test_of_two_requests_with_one_id_the_newest_counts() -> None:
    log = UsageLog(None)
    begun(log)
    begun(log, tokens=9)
    found = log.find("req-1")
    assert found is not None
    assert found.completion_tokens == 9


def test_what_ran_when_a_process_ended_is_finished_in_the_next_one(tmp_path: Path) -> None:
    log = UsageLog(tmp_path)
    begun(log)
    log.close()
    again = UsageLog(tmp_path)
    assert again.find("req-1") == Usage("req-1", 7, 3, 5, finished=True)
    begun(again, "req-2")
    assert again.find("req-1") is not None
    again.close()


def test_what_was_said_elsewhere_counts_from_the_first_moment_on(tmp_path: Path) -> None:
    log = UsageLog(tmp_path)
    log.begin("req-1~2", 7, 4)
    log.close()  # as if it had been killed
    again = UsageLog(tmp_path)
    assert again.find("req-1~2") == Usage("req-1~2", 7, 0, 4, finished=True)
    again.close()


WRITER = """
import sys
from pathlib import Path
from ridgeline.serving.usage_log import PastLogs, UsageLog
log = UsageLog(Path(sys.argv[1]))
entry = log.begin("req-1", 7)
while True:
    entry.completion_tokens += 1
    log.write((entry,))
    print(entry.completion_tokens, flush=True)  # only now may a client have it
"""


def test_no_token_that_was_delivered_is_lost_to_kill_9(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(200):
            assert writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        delivered = [200, *map(int, writer.stdout.read().split("\n")[:-1])][-1]
    log = UsageLog(tmp_path)
    found = log.find("req-1")
    log.close()
    assert found is not None
    assert found.finished
    assert delivered <= found.completion_tokens <= delivered + 1


@given(st.integers(1, 5), st.lists(st.integers(0, 7), max_size=30))
def test_the_last_requests_are_kept_and_no_more(kept: int, ids: list[int]) -> None:
    log = UsageLog(None, requests=kept)
    for tokens, number in enumerate(ids):
        begun(log, f"r{number}", tokens=tokens)
    newest = {number: tokens for tokens, number in enumerate(ids)}
    for number in range(8):
        found = log.find(f"r{number}")
        if newest.get(number, -1) >= len(ids) - kept and number in newest:
            assert found is not None
            assert found.completion_tokens == newest[number]
        else:
            assert found is None


def test_a_request_that_outlives_its_record_does_not_write_into_the_next_one() -> None:
    log = UsageLog(None, requests=1)
    old = log.begin("old", 1)
    begun(log)
    old.completion_tokens = 99
    log.end(old)
    assert log.find("old") is None
    assert log.find("req-1") == REQUEST


def test_a_torn_last_record_is_skipped(tmp_path: Path) -> None:
    log = UsageLog(tmp_path)
    begun(log, "req-1")
    begun(log, "req-2")
    log.close()
    file = tmp_path / "usage.log"
    file.write_bytes(file.read_bytes()[:-100])
    log = UsageLog(tmp_path)
    assert log.find("req-1") is not None
    assert log.find("req-2") is None
    log.close()


class FullDisk(io.BytesIO):
    def write(self, _data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_on_a_full_disk_it_complains_once_and_counts_on(caplog: pytest.LogCaptureFixture) -> None:
    log = UsageLog(None)
    log._file = FullDisk()
    with caplog.at_level(logging.ERROR):
        begun(log)
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text
    assert log.failures == 2
    assert log.find("req-1") == REQUEST, "this process still knows"


def test_two_replicas_do_not_share_a_folder(tmp_path: Path) -> None:
    log = UsageLog(tmp_path)
    with pytest.raises(LaunchError, match="another replica"):
        UsageLog(tmp_path)
    log.close()


def test_a_file_that_is_no_usage_log_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "usage.log").write_text("somebody's notes, which are long enough")
    with pytest.raises(LaunchError, match="no usage log"):
        UsageLog(tmp_path)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LaunchError, match="cannot be opened"):
        UsageLog(tmp_path / "file")


# Logs whose replicas are gone.


def test_a_log_is_read_though_nobody_serves_it(tmp_path: Path) -> None:
    log = UsageLog(tmp_path / "org_chat-1")
    for number in range(50):
        entry = log.begin(f"req-{number}", 10 + number)
        entry.completion_tokens = number
        log.write((entry,))
        if number % 2:
            log.end(entry)
    past = PastLogs(tmp_path)
    assert past.find("org/chat-1", "req-7") == log.find("req-7")
    assert past.find("org/chat-1", "req-8") == log.find("req-8")  # it was running at the end
    assert past.find("org/chat-1", "req-4") == log.find("req-4")  # and not req-40 to req-49
    again = log.begin("req-7", 99)
    assert past.find("org/chat-1", "req-7") == log.find("req-7")
    assert again.prompt_tokens == 99
    for absent in ("req-", "req-50", ""):
        assert past.find("org/chat-1", absent) is None
    assert past.find("elsewhere", "req-7") is None
    assert past.find("../org_chat-1", "req-7") is None
    log.close()


def test_an_empty_or_torn_log_has_nothing(tmp_path: Path) -> None:
    for content in (b"", b"ridgeline usage 1\n", b"x" * 100 + b"req-1"):
        (tmp_path / "r").mkdir(exist_ok=True)
        (tmp_path / "r" / "usage.log").write_bytes(content)
        assert PastLogs(tmp_path).find("r", "req-1") is None
