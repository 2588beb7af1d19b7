"""Ridgeline's own records as a trace: what the gateway writes and what a simulation writes."""

import json
from pathlib import Path

import pytest
from trace_files import jsonl, written

from ridgeline.errors import SpecError
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.gateway.logs import RequestLog
from ridgeline.serving.gateway.prompt_blocks import prompt_blocks
from ridgeline.serving.gateway.record import Exchange
from ridgeline.serving.gateway.redact import Redactor
from ridgeline.serving.gateway.sse import Usage
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.log import Log
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request, read_trace


def exchange(number: int, at_s: float, text: str, **more) -> Exchange:
    """A request as the gateway has it when it has ended."""
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    told = {"model": "chat", "status": 200, "tenant": "search", "ended_ns": 10**9, **more}
    one = Exchange(f"req-{number}", "/v1/chat/completions", 0, at_s, **told)
    one.hashes = prompt_blocks(body, "chat", one.tenant).hashes
    return one


def logged(file: Path, *exchanges: Exchange) -> Path:
    """The gateway's own log of them."""
    log = RequestLog(file, Redactor())
    log.open()
    for one in exchanges:
        log.finished(one)
    log.write({"event": "log", "message": "something else"})
    log.close()
    return file


def test_yesterdays_log_is_a_trace_with_tenants_sessions_and_prefixes(tmp_path):
    talk = "So " + "it was said, and said again. " * 200
    used, session = Usage(1500, 20, None), "search/user-7"
    file = logged(
        tmp_path / "requests.jsonl",
        exchange(2, 1.7e9 + 4.5, talk + "More?", usage=Usage(1510, 9, None), session=session),
        exchange(1, 1.7e9 + 1.25, talk, usage=used, session=session),
        exchange(3, 1.7e9 + 5.0, talk, usage=used, tenant="night"),
    )
    trace = read_trace(file)
    first, second, other = trace.requests
    assert (trace.format, trace.block_tokens, trace.models) == ("Ridgeline events", 128, ("chat",))
    assert trace.notes == ()  # a log is in the order of the ends: that needs no note
    assert [one.at_s for one in trace.requests] == pytest.approx([0.0, 3.25, 3.75])
    assert (first.prompt_tokens, first.output_tokens, first.tenant) == (1500, 20, "search")
    assert first.session == second.session != ""
    assert other.session == ""
    assert len(first.blocks) >= 11
    assert second.blocks[: len(first.blocks)] == first.blocks
    assert not set(other.blocks) & set(first.blocks), "tenants share no blocks"


def test_the_log_holds_hashes_and_no_text_and_no_session(tmp_path):
    one = exchange(1, 1.7e9, "a very secret prompt " * 100, session="search/user-7")
    text = logged(tmp_path / "requests.jsonl", one).read_text()
    assert "secret" not in text
    assert "user-7" not in text


def test_who_was_refused_asks_again_with_the_prompt_he_was_taken_to_have(tmp_path):
    good = exchange(1, 1.7e9, "hello", usage=Usage(3, 2, None))
    refused = exchange(2, 1.7e9 + 1, "hello", status=429, expected_tokens=40)
    broken = exchange(3, 1.7e9 + 2, "hello", status=503, expected_tokens=50)
    trace = read_trace(logged(tmp_path / "requests.jsonl", good, refused, broken))
    sizes = [(one.prompt_tokens, one.output_tokens) for one in trace.requests]
    assert sizes == [(3, 2), (40, 2), (50, 2)]
    assert trace.notes == (
        "2 were not answered: their prompts are estimates, their answers drawn of others'",
    )


def test_who_may_not_ask_and_who_wants_no_answer_are_left_out(tmp_path):
    good = exchange(1, 1.7e9, "hello", usage=Usage(3, 2, None))
    wrong = exchange(2, 1.7e9 + 1, "hello", status=400, expected_tokens=40)
    embedding = exchange(3, 1.7e9 + 2, "hello", usage=Usage(9, 0, None))
    embedding.endpoint = "/v1/embeddings"
    trace = read_trace(logged(tmp_path / "requests.jsonl", good, wrong, embedding))
    assert [one.prompt_tokens for one in trace.requests] == [3]
    assert trace.notes == ("2 rows without prompt or output left out",)


def test_the_events_of_a_simulation_are_a_trace_of_it(tmp_path):
    asked = [Request(float(number), 100 + number, 5 + number) for number in range(20)]
    lines: list[str] = []
    machine = Machine(Plain(0.01, 0.0, 10_000.0), 10_000)
    serving = Serving((Model("chat", Engine(machine)),))
    simulate(serving, OpenLoop(asked, "chat"), Log(lines.append))
    trace = read_trace(written(tmp_path / "events", "\n".join(lines)))
    assert [(one.at_s, one.prompt_tokens, one.output_tokens) for one in trace.requests] == [
        (one.at_s, one.prompt_tokens, one.output_tokens) for one in asked
    ]
    assert trace.models == ("chat",)
    assert trace.block_tokens == 0


def test_a_request_that_comes_again_counts_once_and_tenants_are_read(tmp_path):
    told = {"event": "asked", "who": "0", "what": ["chat", 10, 5, "search", "s-1"]}
    rows = [{"at_ns": 0, **told}, {"at_ns": 9, **told}, {"at_ns": 9, "event": "ended", "who": "0"}]
    (only,) = read_trace(written(tmp_path / "events", jsonl(*rows))).requests
    assert (only.tenant, only.session) == ("search", "s-1")


@pytest.mark.parametrize(
    "wrong", [{"prefix": "12"}, {"prefix": 7}, {"prefix": "x" * 16}, {"at_unix_s": None},
              {"input_tokens": -1}, {"tenant": []}],
)  # fmt: skip
def test_a_line_that_is_wrong_is_named(tmp_path, wrong):
    told = {"event": "request", "at_unix_s": 1.0, "input_tokens": 5, "output_tokens": 5}
    file = written(tmp_path / "events", jsonl(told, {**told, **wrong}))
    with pytest.raises(SpecError, match="line 2: cannot be read as Ridgeline events"):
        read_trace(file)
