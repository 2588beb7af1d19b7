import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from ridgeline.cli.bench import bench
from ridgeline.errors import MissingExtraError, SpecError
from ridgeline.serving.bench import strain

TOKENS = 3


async def list_models(_: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "stub"}]})


async def complete(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    usage = {"prompt_tokens": 128, "completion_tokens": TOKENS}
    for _ in range(TOKENS):
        await response.write(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
        await asyncio.sleep(0.001)
    await response.write(b'data: {"choices":[],"usage":' + json.dumps(usage).encode() + b"}\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


async def start() -> web.AppRunner:
    app = web.Application()
    app.router.add_get("/v1/models", list_models)
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that answers three tokens at once; the client's own lateness is not judged."""
    monkeypatch.setattr(strain, "LEAST_LATENESS_S", 1e9)
    monkeypatch.setattr(strain, "MOST_CPU_SHARE", 1e9)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.mark.parametrize("rate", ["nan", "inf", "0", "-1"])
def test_a_rate_that_is_no_number_is_bad_input(rate):
    result = CliRunner().invoke(bench, ["load", "http://x", f"--rate={rate}"])
    assert result.exit_code == 2
    assert "--rate" in result.output


def called(*words: str) -> Result:
    return CliRunner().invoke(bench, ["load", *words])


def refused(*words: str) -> SpecError:
    error = called(*words).exception
    assert isinstance(error, SpecError), error
    return error


SHORT = ("--requests", "5", "--output-tokens", "3", "--warmup", "1")


def test_a_run_is_a_table_on_standard_output_and_progress_on_standard_error(url):
    result = called(url, *SHORT, "--rate", "50", "--slo", "ttft=30s,tpot=30s")
    assert result.exit_code == 0, result.output
    assert "goodput 100.0 %" in result.stdout.splitlines()[0]
    assert "50 requests/s ..." in result.stderr
    assert "..." not in result.stdout


def test_json_says_the_same_and_nothing_else(url):
    said = json.loads(called(url, *SHORT, "--json", "--seed", "9").stdout)
    assert said["completed"] == 5
    assert said["setting"]["seed"] == 9
    assert said["setting"]["loop"] == "1 worker"
    assert said["output_tokens"] == 5 * TOKENS


def test_a_run_below_attainment_is_a_no(url):
    assert called(url, *SHORT, "--slo", "ttft=1us").exit_code == 1


def test_a_new_seed_is_drawn_for_each_run(url):
    seeds = {json.loads(called(url, *SHORT, "--json").stdout)["setting"]["seed"] for _ in "ab"}
    assert len(seeds) == 2


def test_a_client_that_was_the_bottleneck_is_a_no_without_numbers(url, monkeypatch):
    monkeypatch.setattr(strain, "MOST_CPU_SHARE", -1.0)
    result = called(url, *SHORT)
    assert result.exit_code == 1
    assert "the client was the bottleneck" in result.stderr
    assert result.stdout == ""


def test_a_sweep_prints_its_levels_and_draws_its_picture(url, tmp_path):
    picture = tmp_path / "knee.png"
    words = ("--sweep", "--concurrency", "1", "--slo", "ttft=1us", "--plot", str(picture))
    result = called(url, *SHORT, *words)
    assert result.exit_code == 1
    assert result.stdout.startswith("No load held: goodput 0.0 % is under 90 %")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_trace_is_replayed(url, tmp_path):
    trace = tmp_path / "t.csv"
    rows = "".join(f"2023-11-16 18:15:4{second}.5,128,3\n" for second in range(4))
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    said = json.loads(called(url, "--trace", str(trace), "--speed", "50", "--json").stdout)
    assert said["completed"] == 4
    assert said["setting"]["loop"] == "replay of t.csv"


def test_saved_runs_are_compared_and_a_false_success_is_a_no(url, tmp_path):
    kept = tmp_path / "before.json"
    called(url, *SHORT, "--slo", "ttft=30s", "--save", str(kept))
    said = json.loads(kept.read_text())
    assert len(said["samples"]) == 5
    better = said | {"output_tokens": 10 * said["output_tokens"]}
    worse = better | {"goodput": said["goodput"] | {"good": 1}}
    for name, changed in (("better.json", better), ("worse.json", worse)):
        (tmp_path / name).write_text(json.dumps(changed))
    fine = CliRunner().invoke(bench, ["compare", str(kept), str(tmp_path / "better.json")])
    flagged = CliRunner().invoke(bench, ["compare", str(kept), str(tmp_path / "worse.json")])
    assert (fine.exit_code, flagged.exit_code) == (0, 1)
    assert "flagged" in flagged.stdout
    as_json = ["compare", str(kept), str(tmp_path / "worse.json"), "--json"]
    assert json.loads(CliRunner().invoke(bench, as_json).stdout)["flagged"] is True


def test_runs_held_to_different_objectives_are_not_compared(url, tmp_path):
    files = []
    for slo in ("ttft=30s", "ttft=20s"):
        files.append(str(tmp_path / f"{slo}.json"))
        called(url, *SHORT, "--slo", slo, "--save", files[-1])
    error = CliRunner().invoke(bench, ["compare", *files]).exception
    assert isinstance(error, SpecError)
    assert "other objectives" in str(error)


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("--slo", "ttft=fast"), "--slo"),
        (("--arrivals", "weibull"), "--arrivals"),
        (("--prompt-tokens", "some"), "--prompt-tokens"),
        (("--rate", "1", "--concurrency", "1"), "--rate"),
        (("--trace", "absent.csv"), "--trace"),
        (("--plot", "picture.pdf"), "--plot"),
        (("--save", "absent/run.json"), "--save"),
        (("--model", "other"), "--model"),
        (("--prompt-tokens", "1"), "--prompt-tokens"),
    ],
)
def test_bad_arguments_name_the_option_and_a_remedy(url, words, where):
    error = refused(url, *words)
    assert error.where == where
    assert error.remedy or where in ("--trace", "--save")


def test_lengths_without_arrivals_need_a_load(url, tmp_path):
    trace = tmp_path / "lengths.csv"
    trace.write_text("num_prefill_tokens,num_decode_tokens\n9,3\n")
    assert "--rate or --concurrency" in refused(url, "--trace", str(trace)).remedy
    assert called(url, "--trace", str(trace), "--concurrency", "1").exit_code == 0


def test_a_picture_without_matplotlib_names_what_to_install(url, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    error = called(url, "--plot", "knee.png").exception
    assert isinstance(error, MissingExtraError)
    assert "ridgeline[bench]" in str(error)


def test_the_help_is_quick_since_nothing_heavy_is_imported():
    code = (
        "import sys, ridgeline.cli.bench;"
        "print(sorted({'numpy', 'aiohttp', 'matplotlib', 'torch', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_bad_input_leaves_with_status_2(unused_tcp_port):
    command = ["bench", "load", f"http://127.0.0.1:{unused_tcp_port}"]
    done = subprocess.run(
        [sys.executable, "-m", "ridgeline", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "cannot be reached" in done.stderr
    assert "try: ridgeline up" in done.stderr
