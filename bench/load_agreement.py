"""Compares our load generator's numbers with those of an independent one on the same server.

Law of this file: both clients send the same sizes in the same closed loop to the same server, in
turn, and each side's own definitions are matched: what guidellm calls inter-token latency is our
TPOT per request and our ITL in the mean; its time per output token counts the first token in and
is not compared. Without --url the server is guidellm's own mock server, whose timing is neither
ours nor noisy. `python bench/load_agreement.py --url http://127.0.0.1:8000` measures a real one.

guidellm writes prompts with a Hugging Face tokenizer read from a folder (tokenizer.json and
tokenizer_config.json), by default the folder that `hf_model` writes for the default model.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from socket import socket
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from ridgeline.errors import LaunchError, RidgelineError
from rows import Better, Record, Row, add_options, compared, report, say

ROOT = Path(__file__).resolve().parent.parent
GUIDELLM = ROOT / ".peers/guidellm/bin/guidellm"
MOST_APART = 0.05
START_MOST_S = 60.0
MOCK_TTFT_MS, MOCK_GAP_MS = 100, 20
ROUTES = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}

Measured = dict[str, float]
CASES = {
    "TTFT mean": ("ms", Better.LESS),
    "TTFT p50": ("ms", Better.LESS),
    "TPOT mean": ("ms", Better.LESS),
    "TPOT p50": ("ms", Better.LESS),
    "ITL mean": ("ms", Better.LESS),
    "E2E mean": ("s", Better.LESS),
    "E2E p50": ("s", Better.LESS),
    "output": ("tokens/s", Better.MORE),
    "requests": ("requests/s", Better.MORE),
}


def ours(asked: argparse.Namespace, url: str) -> Measured:
    """One run of `ridgeline bench load`."""
    command = [
        sys.executable, "-m", "ridgeline", "bench", "load", url, "--json", "--ignore-eos",
        "--api", asked.api, "--concurrency", str(asked.concurrency),
        "--requests", str(asked.requests), "--prompt-tokens", str(asked.prompt),
        "--output-tokens", str(asked.output), "--warmup", "0",
        *(["--model", asked.model] if asked.model else []),
    ]  # fmt: skip
    said: dict[str, Any] = json.loads(_output(command))
    return {
        "TTFT mean": 1e3 * said["ttft"]["mean"],
        "TTFT p50": 1e3 * said["ttft"]["p50"],
        "TPOT mean": 1e3 * said["tpot"]["mean"],
        "TPOT p50": 1e3 * said["tpot"]["p50"],
        "ITL mean": 1e3 * said["itl"]["mean"],
        "E2E mean": said["e2e"]["mean"],
        "E2E p50": said["e2e"]["p50"],
        "output": said["output_tokens_per_s"],
        "requests": said["requests_per_s"],
        "tokens": said["output_tokens"] / said["completed"],
        "prompt": said["prompt_tokens"] / said["completed"],
    }


def peer(asked: argparse.Namespace, url: str) -> Measured:
    """One run of guidellm; rates are totals over its own duration, as ours are."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.json"
        model = f",model={asked.model}" if asked.model else ""
        _output([
            str(GUIDELLM), "run", "--disable-console",
            "--backend", f"kind=openai_http,target={url},request_format={ROUTES[asked.api]}{model}",
            "--profile", f"kind=concurrent,streams={asked.concurrency}",
            "--constraint", f"kind=max_requests,count={asked.requests}",
            "--data", f"kind=synthetic_text,prompt_tokens={asked.prompt},"
            f"output_tokens={asked.output}",
            "--tokenizer", f"kind=huggingface_auto,model={asked.tokenizer}",
            "--output", f"kind=json,path={file}",
        ])  # fmt: skip
        (run,) = json.loads(file.read_text())["benchmarks"]
    return from_guidellm(run)


def from_guidellm(run: dict[str, Any]) -> Measured:
    """The measures of one of guidellm's benchmarks, in our names and units."""
    measures = ("time_to_first_token_ms", "inter_token_latency_ms", "request_latency")
    names = (*measures, "prompt_token_count")
    metrics = {name: run["metrics"][name]["successful"] for name in names}
    requests = run["requests"]["successful"]
    paces = sorted(request["inter_token_latency_ms"] for request in requests)
    tokens = sum(request["output_metrics"]["total_tokens"] for request in requests)
    middle = len(paces) // 2
    return {
        "TTFT mean": metrics["time_to_first_token_ms"]["mean"],
        "TTFT p50": metrics["time_to_first_token_ms"]["median"],
        "TPOT mean": sum(paces) / len(paces),
        "TPOT p50": (paces[middle] + paces[~middle]) / 2,
        "ITL mean": metrics["inter_token_latency_ms"]["mean"],
        "E2E mean": metrics["request_latency"]["mean"],
        "E2E p50": metrics["request_latency"]["median"],
        "output": tokens / run["duration"],
        "requests": len(requests) / run["duration"],
        "tokens": tokens / len(requests),
        "prompt": metrics["prompt_token_count"]["mean"],
    }


def _output(command: list[str]) -> str:
    offline = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=offline, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-1500:]
        raise LaunchError(f"left with status {done.returncode}: {said}", where=command[0])
    return done.stdout


@contextmanager
def mock_server(output_tokens: int) -> Iterator[str]:
    """The mock server of guidellm on a free loopback port; its URL once it answers."""
    with closing(socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(GUIDELLM), "mock-server", "--port", str(port), "--model", "mock",
        "--ttft-ms", str(MOCK_TTFT_MS), "--itl-ms", str(MOCK_GAP_MS),
        "--output-tokens", str(output_tokens),
    ]  # fmt: skip
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, server)
            yield url
        finally:
            server.terminate()


def _wait_for(url: str, server: "subprocess.Popen[bytes]") -> None:
    began_s = time.monotonic()
    while server.poll() is None and time.monotonic() - began_s < START_MOST_S:
        try:
            with urlopen(f"{url}/v1/models", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.2)
    raise LaunchError("guidellm's mock server did not start", where=url)


def agreement(case: str, mine: list[Measured], theirs: list[Measured]) -> Row:
    """One row; it is ok where the ratio is within 5 % of 1 on either side."""
    unit, better = CASES[case]
    pairs = [run[case] for run in mine], [run[case] for run in theirs]
    row = compared(case, unit, *pairs, target=1 + MOST_APART, better=Better.LESS)
    assert row.ratio is not None, row
    apart = abs(row.ratio - 1)
    return Row(**(row.to_dict() | {"better": better, "ok": apart <= MOST_APART}))


def measured(asked: argparse.Namespace, url: str) -> Record:
    """All rounds, ours and the peer's in turn, who begins changing from round to round."""
    mine: list[Measured] = []
    theirs: list[Measured] = []
    for number in range(asked.rounds):
        sides = [("ours", mine, ours), ("guidellm", theirs, peer)]
        for name, kept, run in sides if number % 2 == 0 else reversed(sides):
            say(f"round {number + 1} of {asked.rounds}: {name} ...")
            kept.append(run(asked, url))
    sizes = [f"{run['prompt']:.1f} + {run['tokens']:.1f}" for run in (mine[0], theirs[0])]
    return Record(
        bench="load_agreement",
        rows=[agreement(case, mine, theirs) for case in CASES],
        quick=asked.quick,
        notes=[
            f"ok: ours / guidellm is within {100 * MOST_APART:.0f} % of 1, above or below",
            f"{asked.concurrency} in flight, {asked.requests} requests a run, --api {asked.api}",
            f"prompt + output tokens as counted: ours {sizes[0]}, guidellm {sizes[1]}",
            "server: guidellm's mock" if not asked.url else f"server: {asked.url}",
        ],
        details={"ours": mine, "guidellm": theirs},
        peer_versions={"guidellm": _output([str(GUIDELLM), "--version"]).split()[-1]},
    )


def arguments() -> argparse.Namespace:
    """The command line; --quick is one round of 24 requests."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--url", help="a running server; without it, guidellm's mock server")
    parser.add_argument("--model", help="not needed where the server has one")
    parser.add_argument("--tokenizer", type=Path, help="a folder with tokenizer.json")
    parser.add_argument("--api", choices=sorted(ROUTES), default="completions")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.quick:
        asked.rounds, asked.requests = 1, 24
    return asked


def main() -> int:
    """Measure and report; status 1 where a row is further apart, 2 where it cannot be measured."""
    asked = arguments()
    try:
        if not GUIDELLM.exists():
            raise LaunchError("guidellm is not installed", where=str(GUIDELLM), remedy="make peers")
        if asked.tokenizer is None:
            from hf_model import hf_folder

            asked.tokenizer = hf_folder()
        if asked.url:
            record = measured(asked, asked.url)
        else:
            with mock_server(asked.output) as url:
                record = measured(asked, url)
    except RidgelineError as error:
        print(f"load_agreement: {error}", file=sys.stderr)
        return 2
    return report(record, as_json=asked.json, ours="ours", peer="guidellm")


if __name__ == "__main__":
    sys.exit(main())
