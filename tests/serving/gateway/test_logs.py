"""The log: whole lines, no secrets, and nobody waits for a disk."""

import json
import logging
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ridgeline.serving.gateway import logs
from ridgeline.serving.gateway.logs import JsonHandler, RequestLog, log_to, request_line
from ridgeline.serving.gateway.record import Exchange
from ridgeline.serving.gateway.redact import MASK, Redactor
from ridgeline.serving.gateway.sse import Details, Usage

S = 10**9


def exchange() -> Exchange:
    return Exchange(
        "req-1",
        "/v1/chat/completions",
        0,
        1.7e9,
        model="chat",
        replica="chat-0",
        status=200,
        stream=True,
        first_ns=4 * S,
        last_ns=9 * S,
        ended_ns=10 * S,
        usage=Usage(100, 20, Details(64)),
        client_id="theirs",
        tenant="search",
        key_id="key-1",
        reasons={"route": "chat-0 is warm"},
        usd=Decimal("0.000123"),
        basis="usage",
        admitted_ns=S,
        dequeued_ns=2 * S,
        sent_ns=3 * S,
    )


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "requests.jsonl"


def test_a_request_is_one_line_that_says_who_what_where_and_how_long(file: Path) -> None:
    log = RequestLog(file, Redactor())
    log.open()
    one = exchange()
    one.asked, one.told = b"a secret prompt", bytearray(b"an answer")
    log.finished(one)
    log.close()
    (line,) = lines(file)
    assert line["tenant"] == "search"
    assert (line["input_tokens"], line["cached_tokens"], line["output_tokens"]) == (100, 64, 20)
    assert line["usd"] == "0.000123"
    assert line["split_s"] == {
        "admission": 1.0, "queue": 1.0, "route": 1.0, "prefill": 1.0, "decode": 5.0, "network": 1.0
    }  # fmt: skip
    assert line["reasons"] == {"route": "chat-0 is warm"}
    assert (line["session"], line["prefix"]) == ("", "")
    assert "prompt" not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_prompts_are_there_where_they_were_asked_for(file: Path) -> None:
    log = RequestLog(file, Redactor(), prompts=True)
    log.open()
    one = exchange()
    one.asked, one.told = b'{"prompt": "hello"}', bytearray()
    one.wrote(b"h")
    one.wrote(b"i" * 100_000)
    log.finished(one)
    log.close()
    (line,) = lines(file)
    assert line["asked"] == '{"prompt": "hello"}'
    assert line["answered"] == "h" + "i" * (64 * 1024 - 1)


KEYS = st.builds(
    lambda start, rest: start + rest,
    st.sampled_from(["rl-", "sk-", "sk-proj-"]),
    st.text("abcXYZ019_-", min_size=24, max_size=60),
)
AROUND = st.text(max_size=20)


@given(KEYS, AROUND, AROUND, st.sampled_from(["", "Bearer ", "bearer  ", "Authorization: Bearer "]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_planted_key_is_ever_written(key: str, before: str, after: str, word: str) -> None:
    said = f"{before}{word}{key} {after}"
    one = exchange()
    one.error, one.client_id, one.reasons = said, key, {"route": said}
    log = RequestLog(None, Redactor(), prompts=True)
    handler = JsonHandler(log)
    logger = logging.Logger("test")
    logger.addHandler(handler)
    one.asked, one.told = said.encode(), bytearray(said.encode())
    log.finished(one)
    logger.warning("refused %s", said)
    try:
        raise ValueError(said)
    except ValueError:
        logger.exception("it broke")
    written = b"".join(log._waiting)
    assert key.encode() not in written
    assert len([json.loads(line) for line in written.splitlines()]) == 3


@given(st.text(min_size=4, max_size=20), AROUND)
def test_a_secret_that_we_were_told_is_taken_out_whatever_its_shape(secret: str, rest: str) -> None:
    redactor = Redactor([secret, None, ""])
    line = json.dumps({"error": f"{rest}{secret}"}, ensure_ascii=False)
    assert secret not in redactor.text(f"x{secret}")
    kept = redactor.line(line.encode()).replace(MASK.encode(), b"")
    assert json.dumps(secret, ensure_ascii=False)[1:-1].encode() not in kept


def test_half_a_letter_of_a_header_breaks_no_line(file: Path) -> None:
    log = RequestLog(file, Redactor(["t\udce9-secret"]))
    log.open()
    log.write({"event": "test", "client_id": "t\udce9"})
    log.close()
    assert lines(file)[0]["client_id"] == "t\udce9"


@pytest.mark.parametrize(
    "harmless", ["rl-search", "task-list", "risk-averse", "the bearer of bad news", "sk-1"]
)
def test_words_that_only_look_like_keys_stay(harmless: str) -> None:
    kept = Redactor().text(harmless)
    assert kept == harmless or "bearer" in harmless


def test_a_database_address_loses_its_password() -> None:
    said = Redactor().text("cannot reach postgresql://me:hunter2@db/ledger")
    assert said == f"cannot reach postgresql://{MASK}@db/ledger"


def test_lines_beyond_what_may_wait_are_dropped_and_counted(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_WAITING", 3)
    log = RequestLog(file, Redactor())
    for _ in range(5):
        log.write({"event": "test"})
    assert log.dropped == 2
    log.open()
    log.close()
    assert len(lines(file)) == 3


def test_a_full_file_is_set_aside_and_no_line_is_torn(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_FILE_BYTES", 400)
    log = RequestLog(file, Redactor())
    log.open()
    for number in range(30):
        log.write({"event": "test", "number": number})
        log.flush()
    log.close()
    kept = [*lines(file.with_name("requests.jsonl.1")), *lines(file)]
    assert kept[-1]["number"] == 29
    assert [one["number"] for one in kept] == list(range(30 - len(kept), 30))
    assert file.stat().st_size <= 400


def test_workers_that_share_a_file_set_it_aside_once_and_lose_no_line(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_FILE_BYTES", 2_000)
    workers = [RequestLog(file, Redactor()) for _ in range(3)]
    for worker in workers:
        worker.open()
    for number in range(90):
        workers[number % 3].write({"event": "test", "number": number})
        workers[number % 3].flush()
    for worker in workers:
        worker.close()
    kept = [*lines(file.with_name("requests.jsonl.1")), *lines(file)]
    numbers = sorted(one["number"] for one in kept)
    assert numbers == list(range(90 - len(numbers), 90))
    assert len(numbers) > 40


def test_what_libraries_log_goes_there_too_without_secrets(file: Path) -> None:
    redactor = Redactor()
    redactor.learn("hunter2", None)
    log = RequestLog(file, redactor)
    log.open()
    handler = log_to(log)
    try:
        logging.getLogger("somebody.else").error("cannot log in with %s", "hunter2")
        logging.getLogger("somebody.else").debug("not wanted")
        logging.getLogger("ridgeline.part").info("wanted")
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger("ridgeline").setLevel(logging.NOTSET)
    log.close()
    assert [(one["logger"], one["message"]) for one in lines(file)] == [
        ("somebody.else", f"cannot log in with {MASK}"),
        ("ridgeline.part", "wanted"),
    ]


def test_a_disk_that_is_full_costs_lines_and_nothing_else(file: Path) -> None:
    log = RequestLog(Path("/dev/full"), Redactor())
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full, as Linux has it")
    told: list[int] = []
    log.on_dropped = told.append
    log.open()
    log.write({"event": "test"})
    log.close()
    assert (log.dropped, told) == (1, [1])


def test_a_prompt_is_in_the_log_as_every_eighth_hash_of_its_blocks_and_a_session_as_one() -> None:
    one = exchange()
    one.hashes, one.session = tuple(range(1, 25)), "search/user-7"
    line = request_line(one)
    assert line["prefix"] == f"{8:016x}{16:016x}{24:016x}"
    assert len(line["session"]) == 16
    one.session = "search/user-8"
    assert request_line(one)["session"] != line["session"]


def test_parts_of_a_request_that_never_came_far_still_add_up() -> None:
    early = Exchange("id", "/v1/completions", 0, 0.0, status=429, admitted_ns=S, ended_ns=3 * S)
    assert early.split_s() == {"admission": 1.0, "rest": 2.0}
    whole = exchange()
    whole.first_ns = whole.last_ns = 0
    assert whole.split_s() == {"admission": 1.0, "queue": 1.0, "route": 1.0, "answer": 7.0}
    assert request_line(early)["ttft_s"] is None
