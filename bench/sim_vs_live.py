"""How near the simulator comes to the real engine behind the real gateway, on this machine.

    python bench/sim_vs_live.py [--seconds 80] [--window-s 40] [--seed 0] [--quick] [--json]

Twice: one replica with every core, and two with one thread each. `ridgeline up` starts them; what
`ridgeline calibrate --from-live` does says how long their steps take, and that is frozen. Then come
trace windows that are drawn by the seed: cold prompts, and prompts with shared beginnings, at 50 %
and at 80 % of what the calibrated simulator says these replicas can serve. Each window is sent to
the live platform twice, with other words but the same lengths, times and shared blocks, and is
simulated once, from the same spec.

TTFT and E2E count from a request's time, TPOT is of a request. Ratio: simulated / live (the mean of
both live runs); beside it stands how far these two are from each other. ok: the error of a median
and of the throughput is within 5 %, of a p90 or p99 within 15 %, or within 1.5 times the distance
of the two live runs where that is more.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import aiohttp
import numpy as np
import psutil
from numpy.typing import NDArray

from platforms import MODEL, up
from ridgeline.cli.calibrate_live import step_times_of
from ridgeline.errors import RidgelineError
from ridgeline.platform.simulated import serving_of
from ridgeline.serving.bench.drive import Loop, drive
from ridgeline.serving.bench.prompts import Prompts, Vocabulary
from ridgeline.serving.bench.sample import Answer, Sample
from ridgeline.serving.bench.server import Server, connect
from ridgeline.serving.bench.step_profile import POINTS, Extent, profile
from ridgeline.serving.plan.step_file import StepTimes
from ridgeline.serving.plan.step_fit import fit_table
from ridgeline.serving.simulate.calibrated import machine_of, with_ways
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.outcome import percentile
from ridgeline.serving.simulate.setup import Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.spec import load as load_spec
from ridgeline.workload import Request
from rows import Better, Record, Row, add_options, report, say

#: Shared beginnings or not, and the load; near saturation an error of step times is much of TPOT.
WINDOWS = ((False, 0.5), (True, 0.5), (False, 0.8), (True, 0.8))
WITHIN_MEDIAN, WITHIN_TAIL, OF_REPEATS = 0.05, 0.15, 1.5
BLOCK_TOKENS = 16
SHARED_BLOCKS, SHARED_KINDS = 16, 4
MOST_SEQS, CONTEXT_TOKENS = 32, 1024
SHARES = (0.5, 0.9, 0.99)
#: With more of the machine in others' hands nothing here is worth quoting.
OTHERS_MOST = 0.03

Column = NDArray[np.float64]
Times = dict[str, Column]


@dataclass(frozen=True, slots=True)
class Setup:
    """So many replicas with so many threads each; 0: every core."""

    replicas: int
    threads: int

    @property
    def name(self) -> str:
        """As rows have it."""
        return f"{self.replicas} replica" + "s" * (self.replicas > 1)

    def spec(self, folder: Path) -> Path:
        """Its platform.yaml."""
        path = folder / f"platform-{self.replicas}.yaml"
        path.write_text(
            f"""
name: sim-vs-live
models:
  - name: live
    model: {MODEL}
    engine: {{threads: {self.threads}, max_seqs: {MOST_SEQS}, max_model_len: 2048, kv_cache: 500MB}}
    replicas: {{min: {self.replicas}}}
gateway: {{listen: "127.0.0.1:0", database: "sqlite:///{folder}/live-{self.replicas}.db"}}
"""
        )
        return path


SETUPS = (Setup(1, 0), Setup(2, 1))


@dataclass(frozen=True, slots=True)
class Window:
    """What is asked, and when."""

    name: str
    requests: Sequence[Request]


def drawn(name: str, seed: int, rate_per_s: float, lasts_s: float, *, shared: bool) -> Window:
    """Poisson arrivals, lognormal lengths; `shared`: one of a few beginnings of 256 tokens."""
    chance = random.Random(f"{name} {seed}")
    requests, at_s, number = [], 0.0, SHARED_KINDS * SHARED_BLOCKS
    while (at_s := at_s + chance.expovariate(rate_per_s)) < lasts_s:
        kind = min(int(chance.expovariate(0.7)), SHARED_KINDS - 1)
        blocks = [kind * SHARED_BLOCKS + place for place in range(SHARED_BLOCKS)] if shared else []
        own = int(min(max(chance.lognormvariate(4.4, 0.7), 24), 400))
        tokens = len(blocks) * BLOCK_TOKENS + own
        more = tokens // BLOCK_TOKENS - len(blocks)
        blocks += range(number, number + more)
        number += more
        output = int(min(max(chance.lognormvariate(3.6, 0.6), 8), 160))
        requests.append(Request(at_s, tokens, output, tuple(blocks)))
    return Window(name, requests)


class Others:
    """What share of the machine's CPU others than this program and its children have taken."""

    def __init__(self) -> None:
        self._began = self._read()

    def share(self) -> float:
        """Since it was made; a hypervisor's theft counts."""
        (all_s, busy_s, own_s), (all_then, busy_then, own_then) = self._read(), self._began
        others_s = busy_s - busy_then - (own_s - own_then)
        return max(0.0, others_s / max(all_s - all_then, 1e-9))

    def _read(self) -> tuple[float, float, float]:
        times, me, own_s = psutil.cpu_times(), psutil.Process(), 0.0
        for process in (me, *me.children(recursive=True)):
            spent = process.cpu_times()
            own_s += spent.user + spent.system
        all_s = sum(times) - getattr(times, "guest", 0.0)
        return all_s, all_s - times.idle - getattr(times, "iowait", 0.0), own_s


async def replicas_of(url: str) -> list[str]:
    """Where the gateway's replicas listen."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/console.json") as answer:
        told = await answer.json()
    return sorted(one["address"] for one in told["replicas"])


@dataclass(frozen=True, slots=True)
class Live:
    """A platform that runs, and words of one token each."""

    url: str
    model: str
    vocabulary: Vocabulary

    async def replay(self, window: Window, words: int) -> list[Sample]:
        """Send a window; `words` is the seed of its texts."""
        prompts = Prompts(self.vocabulary, words, block_tokens=BLOCK_TOKENS)
        async with connect(300.0, None) as session:
            server = Server(session, self.url, self.model, "completions", ignore_eos=True)

            async def send(index: int, request: Request, origin_s: float) -> Answer:
                return await server.send(
                    prompts.text(index, request), request.output_tokens, origin_s
                )

            driven = await drive(window.requests, send, Loop())
        failed = [one.answer for one in driven.samples if not one.ok]
        if failed:
            raise RuntimeError(f"{len(failed)} failed: {failed[0].error} {failed[0].detail}")
        say(f"  client: {driven.strain}")
        return list(driven.samples)


async def learnt(replica: str, url: str) -> Live:
    """The words, asked of a replica: the gateway does not tokenise."""
    async with connect(60.0, None) as session:
        server = Server(session, replica, "live", "completions", ignore_eos=True)
        return Live(url, "live", await Vocabulary.learn(server.count_tokens))


async def calibrated(urls: Sequence[str], through: str, seconds: float, seed: int) -> StepTimes:
    """What `ridgeline calibrate --from-live` finds."""
    extent = Extent(MOST_SEQS, CONTEXT_TOKENS)
    seen = await profile(urls, extent, seconds, seed=seed, through=through)
    return step_times_of(fit_table(seen.seen, POINTS), seen, urls, None)


def simulated(serving: Serving, window: Window) -> Times:
    """The window in virtual time."""
    outcome = simulate(serving, OpenLoop(window.requests, "live", block_tokens=BLOCK_TOKENS))
    assert outcome.answered.all(), "all are answered live"
    at, first, done, said = (
        outcome.columns[name] for name in ("at_ns", "first_ns", "done_ns", "said_tokens")
    )
    return _times(at / 1e9, first / 1e9, done / 1e9, said)


def measured(samples: Sequence[Sample]) -> Times:
    """The same of a live run."""
    columns = [
        (one.scheduled_s, one.answer.token_times_s[0], one.answer.token_times_s[-1],
         one.output_tokens)
        for one in samples
    ]  # fmt: skip
    return _times(*np.array(columns).T)


def _times(at: Column, first: Column, last: Column, said: Column) -> Times:
    return {
        "TTFT": 1e3 * (first - at),
        "TPOT": 1e3 * (last - first) / (said - 1),
        "E2E": 1e3 * (last - at),
        "throughput": np.array([said.sum() / (last.max() - at.min())]),
    }


def capacity_per_s(serving: Serving, lasts_s: float, seed: int, *, shared: bool) -> float:
    """Requests a second where all come at once, as the simulator has it."""
    window = drawn("capacity", seed, 200 / lasts_s, lasts_s, shared=shared)
    at_once = Window(window.name, [replace(one, at_s=0.0) for one in window.requests])
    outcome = simulate(serving, OpenLoop(at_once.requests, "live", block_tokens=BLOCK_TOKENS))
    return len(at_once.requests) / outcome.lasted_s


def rows_of(case: str, ours: Times, live: Sequence[Times]) -> list[Row]:
    """Quantiles of each metric, and the throughput."""
    found = []
    for metric in ("TTFT", "TPOT", "E2E"):
        for share in SHARES:
            within = WITHIN_MEDIAN if share == 0.5 else WITHIN_TAIL
            values = [percentile(one[metric], share) for one in (ours, *live)]
            found.append(_row(f"{case}: {metric} p{100 * share:g}", "ms", values, within))
    values = [float(one["throughput"][0]) for one in (ours, *live)]
    return [*found, _row(f"{case}: throughput", "tokens/s", values, WITHIN_MEDIAN)]


def _row(case: str, unit: str, values: Sequence[float], within: float) -> Row:
    ours, *live = values
    apart = max(live) / min(live) - 1
    real = mean(live)
    ratio, allowed = ours / real, max(within, OF_REPEATS * apart)
    return Row(
        f"{case} (live twice: {apart:.1%})", unit, ours, real, ratio, ours / max(live),
        ours / min(live), 1 + allowed, Better.LESS, abs(ratio - 1) <= allowed,
    )  # fmt: skip


async def compared(setup: Setup, options: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    """One setup: calibrate, freeze, and then the windows."""
    seed, rows = options.seed, []
    with tempfile.TemporaryDirectory() as name:
        spec = setup.spec(Path(name))
        async with up(str(spec)) as running:
            urls = await replicas_of(running.url)
            live = await learnt(urls[0], running.url)
            say(f"{setup.name}: calibrating for {options.seconds:g} s ...")
            others = Others()
            times = await calibrated(urls, running.url, options.seconds, seed)
            shares = {"calibration": others.share()}
            say(f"  the fit is {times.source['median_error']:.1%} off")
            serving = _frozen(spec, times)
            details: dict[str, Any] = {"step_times": _plain(times)}
            for number, (shared, load) in enumerate(options.windows):
                kind = "shared" if shared else "cold"
                case = f"{setup.name}, {kind} at {load:.0%}"
                most = capacity_per_s(serving, options.window_s, seed, shared=shared)
                rate_per_s = load * most
                window = drawn(case, seed + number, rate_per_s, options.window_s, shared=shared)
                say(f"{case}: {len(window.requests)} requests, {rate_per_s:.1f}/s ...")
                runs, others = [], Others()
                for repeat in range(options.repeats):
                    words = random.Random(f"{case} {seed} {repeat}").getrandbits(32)
                    runs.append(measured(await live.replay(window, words)))
                shares[case] = others.share()
                ours = simulated(serving, window)
                rows += rows_of(case, ours, runs)
                details[case] = {
                    "simulated": _lists(ours), "live": [_lists(one) for one in runs]
                }  # fmt: skip
            details["others"] = shares
            details["noisy"] = [one for one, share in shares.items() if share > OTHERS_MOST]
    return rows, details


def _frozen(spec: Path, times: StepTimes) -> Serving:
    """The spec, on the machine that was measured."""
    serving = serving_of(load_spec(spec), machines={"live": machine_of(times)})
    return with_ways(serving, {"live": times})


def _plain(times: StepTimes) -> dict[str, Any]:
    curve = {str(rows): one.value for rows, one in times.curve.items()}
    names = ("sequence_s", "cached_s_per_token", "attended_s_per_pair", "arrive_s", "deliver_s")
    return {"curve": curve, **{name: getattr(times, name).value for name in names},
            "source": dict(times.source)}  # fmt: skip


def _noise(details: Mapping[str, Any]) -> list[str]:
    """What a reader must know of the machine meanwhile."""
    told = [one for one in details.values() if isinstance(one, dict)]
    worst = max((share for one in told for share in one["others"].values()), default=0.0)
    if noisy := [name for one in told for name in one["noisy"]]:
        return [f"NOISY, not to be quoted: others took up to {worst:.0%} in {', '.join(noisy)}."]
    return [f"Quiet: others took at most {worst:.1%} of the CPU at any time."]


def _lists(times: Mapping[str, Column]) -> dict[str, list[float]]:
    return {name: np.round(column, 3).tolist() for name, column in times.items()}


def main() -> int:
    """Command line; 2 where something could not be started or asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--seconds", type=float, default=80.0, help="of a calibration")
    parser.add_argument("--window-s", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, choices=(1, 2), help="so many replicas only")
    options = parser.parse_args()
    options.windows = WINDOWS[1:3] if options.quick else WINDOWS
    options.repeats = 2
    if options.quick:
        options.seconds, options.window_s = min(options.seconds, 40.0), 12.0
    before = os.getloadavg()[0]
    rows: list[Row] = []
    details: dict[str, Any] = {"load_average_before": before}
    try:
        for setup in SETUPS:
            if options.only in (None, setup.replicas):
                some, told = asyncio.run(compared(setup, options))
                rows, details = rows + some, {**details, setup.name: told}
    except (RidgelineError, aiohttp.ClientError, RuntimeError, TimeoutError) as error:
        print(f"sim_vs_live: {error}", file=sys.stderr)
        return 2
    errors = [abs(row.ratio - 1) for row in rows if row.ratio is not None]
    notes = [
        f"ok: medians and throughput within {WITHIN_MEDIAN:.0%}, p90 and p99 within "
        f"{WITHIN_TAIL:.0%}, or within {OF_REPEATS:g} times the distance of two live runs",
        f"All {len(errors)} errors: median {median(errors):.1%}, most {max(errors):.1%}. "
        f"Load average before: {before:.1f}.",
        *_noise(details),
    ]
    record = Record("sim_vs_live", rows, options.quick, notes, json.loads(json.dumps(details)))
    return report(record, as_json=options.json, ours="simulated", peer="live")


if __name__ == "__main__":
    sys.exit(main())
