"""`bench load` from its plan to its report: learn the server, warm it, send, judge, sum up.

Called by the command line. A run whose client was the bottleneck raises BenchError instead of
reporting; see `strain` for the thresholds.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import NoReturn

from ridgeline.errors import BenchError, SpecError
from ridgeline.serving.bench.drive import Driven, Loop, drive
from ridgeline.serving.bench.goodput import Slo
from ridgeline.serving.bench.prompts import DRAWN_WORDS, Prompts, Vocabulary
from ridgeline.serving.bench.report import Report, Setting, report
from ridgeline.serving.bench.sample import Answer, Sample
from ridgeline.serving.bench.server import Api, Served, Server, base_url, choose, connect, models
from ridgeline.serving.bench.strain import reasons_to_refuse
from ridgeline.workload import Arrivals, Request, Sizes, Trace, sized, synthetic

POISSON = Arrivals("Poisson", 1.0)
TOKENS_128 = Sizes("fixed", 128)
WARM_WORKERS = 4
WARM_SEED = 0x5EED
REMEDY = "a lower load, or the client on a machine (or cores) of its own"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a run is made of; the same plan sends the same requests.

    One of `rate_per_s` (open loop), `workers` (closed loop) or a timed `trace` alone says when
    requests go out; a trace beside a rate or workers gives sizes only. `requests` or
    `duration_s` says when it ends, whichever comes first.
    """

    url: str
    seed: int
    model: str | None = None
    api: Api = "chat"
    api_key: str | None = None
    rate_per_s: float | None = None
    workers: int | None = None
    arrivals: Arrivals = POISSON
    trace: Trace | None = None
    requests: int | None = None
    duration_s: float | None = None
    prompt: Sizes = TOKENS_128
    output: Sizes = TOKENS_128
    shared_tokens: int = 0
    slo: Slo | None = None
    warmup: int = 2
    ignore_eos: bool = False
    timeout_s: float = 600.0

    @property
    def load(self) -> float | None:
        """Requests/s or workers; None for a replay."""
        return self.rate_per_s if self.workers is None else float(self.workers)

    def at(self, load: float) -> "Plan":
        """The same plan at another load, in the loop it has."""
        if self.workers is not None:
            return replace(self, workers=round(load))
        return replace(self, rate_per_s=load)

    def loop_text(self) -> str:
        """How requests go out, in words."""
        if self.workers is not None:
            return f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        if self.rate_per_s is not None:
            return f"{self.rate_per_s:.3g} requests/s"
        assert self.trace is not None, "a plan needs a rate, workers or a trace"
        return f"replay of {self.trace.name}"

    def sizes_text(self) -> str:
        """How large requests are, in words."""
        if self.trace is not None:
            return f"sizes of {self.trace.name}"
        return f"prompt {self.prompt} + output {self.output} tokens"


def requests_of(plan: Plan) -> Iterable[Request]:
    """The plan's requests, in order, ending where the plan ends."""
    endless = _endless(plan)
    timed = plan.workers is None and plan.duration_s is not None
    within = takewhile(lambda r: r.at_s <= (plan.duration_s or 0.0), endless) if timed else endless
    return islice(within, plan.requests)


def _endless(plan: Plan) -> Iterator[Request]:
    sizes = sized(plan.prompt, plan.output, seed=plan.seed)
    if plan.trace is not None:
        sizes = iter(plan.trace.requests)
    if plan.workers is not None or plan.rate_per_s is None:
        return sizes
    if plan.trace is None:
        return synthetic(
            plan.arrivals, plan.prompt, plan.output, rate_per_s=plan.rate_per_s, seed=plan.seed
        )
    times = plan.arrivals.times_s(plan.rate_per_s, plan.seed)
    return (replace(r, at_s=at_s) for at_s, r in zip(times, sizes, strict=False))


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told how a run goes: `began(plan, text)`, then `seen` of each sample."""

    began: Callable[[Plan, str], None]
    seen: Callable[[Sample], None]


@dataclass(frozen=True, slots=True)
class Bench:
    """A server that was learnt, ready for runs. `now` is the clock of the answers' times."""

    server: Server
    served: Served
    vocabulary: Vocabulary
    stop: asyncio.Event
    watcher: Watcher
    now: Callable[[], float] = time.perf_counter

    async def warm(self, plan: Plan) -> None:
        """Send `plan.warmup` requests that are not measured. Raises BenchError if none works."""
        if not plan.warmup:
            return
        warm = replace(
            plan,
            seed=plan.seed ^ WARM_SEED,
            workers=WARM_WORKERS,
            duration_s=None,
            requests=plan.warmup,
        )
        driven = await self._drive(warm, self._fitting(warm), "warm-up")
        wrong = [sample.answer for sample in driven.samples if not sample.ok]
        if wrong and len(wrong) == len(driven.samples):
            raise BenchError(
                f"every warm-up request failed: {wrong[0].error} {wrong[0].detail}".rstrip(),
                where=plan.url,
                remedy="the server's log; --api completions where a model has no chat template",
            )

    async def run(self, plan: Plan) -> Report:
        """One measured run. Raises BenchError where the client was the bottleneck."""
        fitting = self._fitting(plan)
        driven = await self._drive(plan, fitting, plan.loop_text())
        if not driven.samples:
            self._complain_of_nothing(driven, fitting)
        notes = [*(plan.trace.notes if plan.trace else ()), *fitting.notes()]
        found = report(driven, self._setting(plan), plan.slo, notes)
        self._refuse(found, plan)
        return found

    async def _drive(self, plan: Plan, fitting: "Fitting", text: str) -> Driven:
        self.watcher.began(plan, text)
        prompts = fitting.prompts

        async def send(index: int, request: Request, origin_s: float) -> Answer:
            text = prompts.text(index, request)
            return await self.server.send(text, request.output_tokens, origin_s)

        loop = Loop(plan.workers, plan.duration_s)
        requests = fitting.fit(requests_of(plan))
        return await drive(
            requests, send, loop, stop=self.stop, seen=self.watcher.seen, now=self.now
        )

    def _fitting(self, plan: Plan) -> "Fitting":
        block_tokens = plan.trace.block_tokens if plan.trace else 0
        prompts = Prompts(self.vocabulary, plan.seed, plan.shared_tokens, block_tokens)
        least = prompts.least_tokens
        if plan.trace is None and plan.prompt.kind == "fixed" and plan.prompt.first < least:
            raise SpecError(
                f"a prompt of {plan.prompt} tokens is not possible: template, first word and "
                f"shared prefix take {least - 1}",
                where="--prompt-tokens",
                remedy=f"{least + DRAWN_WORDS} or more, so that prompts differ",
            )
        return Fitting(prompts, self.served.max_tokens)

    def _complain_of_nothing(self, driven: Driven, fitting: "Fitting") -> NoReturn:
        if fitting.left_out and not driven.unfinished:
            raise SpecError(
                f"every request is over the model's {self.served.max_tokens} tokens",
                where="--prompt-tokens, --output-tokens or --trace",
                remedy="smaller requests, or a model with a longer context",
            )
        raise BenchError("no request was finished", where=self.server.url, remedy="a longer run")

    def _setting(self, plan: Plan) -> Setting:
        return Setting(
            url=plan.url,
            model=self.served.name,
            api=plan.api,
            loop=plan.loop_text(),
            closed=plan.workers is not None,
            load=plan.load,
            sizes=plan.sizes_text(),
            seed=plan.seed,
            exact_sizes=self.vocabulary.exact,
            shared_tokens=plan.shared_tokens,
        )

    def _refuse(self, found: Report, plan: Plan) -> None:
        reasons = reasons_to_refuse(found.strain, found.ttft.p99 if found.ttft else None)
        if reasons:
            raise BenchError(
                f"the client was the bottleneck at {plan.loop_text()}: {'; '.join(reasons)}",
                where="bench load",
                remedy=REMEDY,
            )


@dataclass(slots=True)
class Fitting:
    """Makes requests fit the model, and counts what it had to change, for the report."""

    prompts: Prompts
    most_tokens: int | None
    raised: int = 0
    left_out: int = 0

    def fit(self, requests: Iterable[Request]) -> Iterator[Request]:
        """Leave out what the context has no room for; lengthen prompts below the least."""
        least = self.prompts.least_tokens
        for request in requests:
            if request.prompt_tokens < least:
                self.raised += 1
                request = replace(request, prompt_tokens=least)
            total = request.prompt_tokens + request.output_tokens
            if self.most_tokens is not None and total > self.most_tokens:
                self.left_out += 1
                continue
            yield request

    def notes(self) -> list[str]:
        """What was changed, in words."""
        notes = []
        if self.left_out:
            notes.append(f"{self.left_out} requests over {self.most_tokens} tokens were left out")
        if self.raised:
            least = self.prompts.least_tokens
            notes.append(f"{self.raised} prompts were lengthened to the least possible, {least}")
        return notes


@asynccontextmanager
async def opened(plan: Plan, watcher: Watcher, stop: asyncio.Event) -> AsyncIterator[Bench]:
    """Learn the plan's server: its models, its tokenizer. Raises SpecError."""
    async with connect(plan.timeout_s, plan.api_key) as session:
        url = base_url(plan.url)
        served = choose(await models(session, url), plan.model)
        server = Server(session, url, served.name, plan.api, plan.ignore_eos)
        vocabulary = await Vocabulary.learn(server.count_tokens)
        yield Bench(server, served, vocabulary, stop, watcher)
