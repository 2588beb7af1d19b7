import argparse
import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))  # scripts, not a package

pytest.importorskip("uvloop", reason="the gateway bench runs on uvloop")

import gateway
import gateway_contenders
import gateway_load
import mock_upstream
from gateway_contenders import CONTENDERS, OURS, PEERS
from gateway_load import Asks, Measured, body_of, is_whole
from gateway_rows import LEAST_ADDED_S, Added, gateway_rows, rss_row
from peers import NAMES
from ridgeline.spec import parse


def run_of(p50_s: float, p99_s: float = 0.0, *, shift_s: float = 0.0) -> Measured:
    return Measured(
        requests=100,
        wall_s=1.0,
        client_cpu_s=0.1,
        p50_s=p50_s,
        p99_s=p99_s or p50_s,
        shift_p99_s=shift_s,
        transit_p50_s=shift_s,
        transit_p99_s=shift_s,
    )


def added(p50_s: float, *, direct_s: float = 0.001, cpu_s: float = 0.1) -> Added:
    direct = run_of(direct_s)
    return Added(direct, run_of(direct_s + p50_s), direct, cpu_s)


def test_what_a_gateway_adds_is_a_difference_to_the_runs_around_it() -> None:
    one = Added(run_of(0.001), run_of(0.010), run_of(0.003), cpu_s=0.1)
    assert one.added_s("p50_s") == pytest.approx(0.008)
    assert one.requests_per_core_s == pytest.approx(1000)


def test_a_difference_too_small_to_see_is_not_less_than_the_least() -> None:
    assert Added(run_of(0.003), run_of(0.001), run_of(0.003), 0.1).added_s("p50_s") == LEAST_ADDED_S


def test_the_targets_are_those_of_the_issue() -> None:
    taken = {"c64": {OURS: [added(0.010)], "litellm": [added(0.050, cpu_s=0.6)]}}
    p50, p99, rate = gateway_rows(taken, OURS, "litellm")
    assert (p50.ratio, p50.target, p50.ok) == (pytest.approx(0.2), 0.25, True)
    assert (p99.ratio, p99.target, p99.ok) == (pytest.approx(0.2), 0.2, True)
    assert (rate.ratio, rate.target, rate.ok) == (pytest.approx(6), 5, True)
    rust = gateway_rows({"c1": {OURS: [added(0.009)], "smg": [added(0.001)]}}, OURS, "smg")
    assert (rust[0].ratio, rust[0].target, rust[0].ok) == (pytest.approx(9), 8, False)


def test_a_streams_row_bounds_what_we_add_ourselves() -> None:
    direct, late = run_of(1, shift_s=0.001), run_of(1, shift_s=0.0025)
    mine = [Added(direct, late, direct, 0.1)]
    later, _ = gateway_rows({"64 streams spread": {OURS: mine, "smg": mine}}, OURS, "smg")
    assert (later.ours, later.target, later.ok) == (pytest.approx(1.5), 1.0, False)


def test_memory_may_grow_by_a_twentieth() -> None:
    assert rss_row(100, 104, requests=1000).ok
    assert not rss_row(100, 106, requests=1000).ok


def test_every_peer_can_be_installed_and_is_started_on_the_port_it_is_given(
    tmp_path: Path,
) -> None:
    assert set(PEERS) <= set(NAMES)
    for contender in CONTENDERS.values():
        command = contender.command(1234, "http://127.0.0.1:9", tmp_path)
        written = " ".join([*command, *(file.read_text() for file in tmp_path.iterdir())])
        assert "1234" in written
        assert "http://127.0.0.1:9" in written


def test_our_platform_has_tenants_limits_money_and_a_key(tmp_path: Path) -> None:
    gateway_contenders._ours(1234, "http://127.0.0.1:9", tmp_path)
    platform = parse((tmp_path / "platform.yaml").read_text(), name="platform.yaml")
    (tenant,) = platform.tenants
    assert tenant.all_limits.budget is not None
    assert tenant.limits.output_tokens_per_minute
    assert platform.models[0].price.output > 0
    assert platform.gateway.api_key_env
    assert platform.gateway.admin_key_env


@pytest.fixture
async def mock_port() -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(mock_upstream.Replica, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


def asks(port: int, *, stream: str = "", requests: int = 20, lanes: int = 4) -> Asks:
    return Asks(port, mock_upstream.MODEL, lanes, requests, 0.0, stream, 100, 1)


async def test_every_request_of_a_run_is_answered_and_timed(mock_port: int) -> None:
    result = await gateway_load.run(asks(mock_port), "key")
    assert result.requests == 20
    assert 0 < result.p50_s <= result.p99_s
    assert result.transit_p99_s == 0


@pytest.mark.parametrize("stream", ["spread", "in-step"])
async def test_chunks_say_how_long_they_were_on_their_way(
    mock_port: int, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mock_upstream, "CHUNKS", 4)
    result = await gateway_load.run(asks(mock_port, stream=stream, requests=4), "key")
    assert result.requests == 4
    assert 0 < result.transit_p50_s <= result.transit_p99_s < 1


async def test_a_run_ends_with_the_answer_that_is_no_200(
    mock_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\nno"
    monkeypatch.setattr(mock_upstream, "ANSWER", refused)
    with pytest.raises(RuntimeError, match="429"):
        await gateway_load.run(asks(mock_port), "key")


async def test_the_mock_tolerates_a_look_for_http2(mock_port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", mock_port)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 505")
    writer.close()


async def test_the_mock_counts_usage_only_for_who_asks(
    mock_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mock_upstream, "CHUNKS", 1)
    told = []
    for options in ({}, {"stream_options": {"include_usage": True}}):
        reader, writer = await asyncio.open_connection("127.0.0.1", mock_port)
        body = json.dumps({"stream": True, **options}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        told.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.close()
    assert [b"prompt_tokens" in stream for stream in told] == [False, True]


@pytest.mark.parametrize(
    ("buffer", "whole"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 250\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Le", False),
    ],
)
def test_an_answer_is_whole_once_its_last_byte_is_here(buffer: bytes, *, whole: bool) -> None:
    assert is_whole(buffer) == whole


def test_no_two_requests_begin_alike_but_all_are_chats() -> None:
    body = json.loads(body_of(asks(1, stream="in-step"), "abc"))
    assert body["stream"]
    assert body["messages"][1]["content"].startswith("abc")
    assert mock_upstream.IN_STEP.decode() in body["messages"][1]["content"]


def test_a_port_where_nobody_listens_and_an_unknown_peer_are_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="there is no 'nginx'"):
        gateway._peers("litellm,nginx")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but nobody listens
        port = str(closed.getsockname()[1])
        told = ["gateway_load.py", "--port", port, "--model", "m", "--requests", "1"]
        monkeypatch.setattr(sys, "argv", told)
        assert gateway_load.main() == 2
    assert "gateway load:" in capsys.readouterr().err
