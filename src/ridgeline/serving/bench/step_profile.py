"""Profiles a running engine from outside: which steps take how long, by when tokens arrive.

    decode     n requests at once, of which each gets a token in every step: the time between two
    prefill    one request alone: its way there, its prompt's steps, and its first token's way back
    mixed      prompts that come one by one while n others decode: the steps that have both

Rounds of these are asked over and over for as long as was said. The wire is enough, so this works
for any engine that speaks OpenAI's API and honours `ignore_eos`. Nobody else may use it meanwhile.
Replicas that share a machine are asked at the same time, so that each meets the others' work; and
where their gateway is on it too, batches are asked through it: it passes on each token.
"""

import asyncio
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median
from typing import TypeVar

import aiohttp
import numpy as np
from numpy.typing import NDArray

from ridgeline.errors import BenchError, SpecError
from ridgeline.serving.bench.prompts import Prompts, Vocabulary
from ridgeline.serving.bench.sample import Answer
from ridgeline.serving.bench.server import Server, base_url, choose, connect, models
from ridgeline.serving.plan.step_fit import Counts, Observed, prompt_steps
from ridgeline.workload import Request

T = TypeVar("T")

#: A short prompt, and how many steps of a batch are timed.
SHORT_TOKENS, STEPS = 16, 24
LEAST_STEPS = 6
#: Prompts that join a batch, one after the other.
NEWCOMERS = 4
#: Sizes of batches, of prompts, and of steps: powers of two, and one between each two.
POINTS = tuple(
    sorted({1, *(2**power for power in range(1, 16)), *(3 << power for power in range(14))})
)
TIMEOUT_S = 300.0
_PINGS, _PASSES = 15, 15


@dataclass(frozen=True, slots=True)
class Extent:
    """How far to look: so many sequences at once, contexts, and the most tokens of a step."""

    sequences: int = 32
    context_tokens: int = 1024
    step_tokens: int = 512


@dataclass(frozen=True, slots=True)
class Profile:
    """What was seen of engines that are alike. `kv_tokens` is 0 where they do not tell.

    `ping_s` is the shortest question to one of them, `passed_s` what a gateway adds to a request.
    """

    model: str
    seen: tuple[Observed, ...]
    ping_s: float
    passed_s: float
    kv_tokens: int
    block_tokens: int
    took_s: float


@dataclass(frozen=True, slots=True)
class Round:
    """`sequences` decode behind `context` tokens each; a `prompt` comes to them, or alone.

    One alone that has a longer `context` than usual has it in the cache, if there is one.
    """

    sequences: int = 0
    context: int = SHORT_TOKENS
    prompt: int = 0

    @property
    def what(self) -> str:
        """In words."""
        decode = f"{self.sequences} x {self.context}" if self.sequences else ""
        cached = f"({self.context})" if self.is_warm else ""
        return " + ".join(part for part in (decode, cached, str(self.prompt or "")) if part)

    @property
    def is_warm(self) -> bool:
        """Whether its beginning is cached."""
        return not self.sequences and self.context > SHORT_TOKENS


def rounds(extent: Extent) -> list[Round]:
    """All kinds, from cheap to dear."""
    batches = [one for one in POINTS if one < extent.sequences] + [extent.sequences]
    contexts = [one for one in (256, 1024, 4096, 16384) if one < extent.context_tokens]
    prompts = [one for one in POINTS if SHORT_TOKENS <= one <= extent.context_tokens]
    some = max(1, extent.sequences // 4)
    room = extent.step_tokens - extent.sequences
    joined = [one for one in (32, 64, 128, 256) if one <= room]
    return [
        *(Round(one) for one in batches),
        *(Round(count, one) for one in contexts for count in (1, some)),
        *(Round(prompt=one) for one in prompts),
        *(Round(context=extent.context_tokens // 2, prompt=one) for one in (64, 192)),
        *(Round(count, prompt=one) for one in joined for count in (some // 2, some) if count),
    ]


@dataclass(slots=True)
class Profiler:
    """Asks servers round after round, until `until_s` on its clock."""

    servers: Sequence[Server]
    prompts: Prompts
    extent: Extent
    front: Server | None = None
    now: Callable[[], float] = time.perf_counter
    seen: list[Observed] = field(default_factory=list)
    _asked: int = 0
    _settles_s: dict[tuple[int, int], float] = field(default_factory=dict)

    async def run(self, until_s: float) -> None:
        """As many rounds as there is time for."""
        for server in self._targets:  # connections, and whatever is made at first use
            await self._burst(server, 2, SHORT_TOKENS, 4)
        took_s: dict[Round, float] = {}
        while True:
            for one in rounds(self.extent):
                began_s = self.now()
                if began_s + took_s.get(one, 0.0) > until_s:
                    self._check_whole(took_s)
                    return
                self.seen += await self._round(one)
                took_s[one] = self.now() - began_s

    def _check_whole(self, asked: Collection[Round]) -> None:
        """BenchError where not every kind was asked: the rest would be made up."""
        every = set(rounds(self.extent))
        if missing := len(every) - len(asked):
            raise BenchError(
                f"the time was over before {missing} of {len(every)} rounds",
                where="--seconds",
                remedy="more of them, or a smaller --sequences or --context",
            )

    async def passed_s(self) -> float:
        """What the gateway adds to a request: first tokens through it and past it, in turns."""
        if self.front is None:
            return 0.0
        through, past = [], []
        for _ in range(_PASSES):
            through.append(_first_s(await self._ask(self.front, SHORT_TOKENS, 2)))
            past.append(_first_s(await self._ask(self.servers[0], SHORT_TOKENS, 2)))
        return max(0.0, median(through) - median(past))

    @property
    def _targets(self) -> Sequence[Server]:
        """Where batches are asked, one for each server."""
        return self.servers if self.front is None else [self.front] * len(self.servers)

    async def _round(self, one: Round) -> list[Observed]:
        if one.sequences and not one.prompt:
            return await self._batches(one)
        ask = self._mixed if one.sequences else self._alone
        return _flat(await asyncio.gather(*(ask(one, server) for server in self.servers)))

    async def _alone(self, one: Round, server: Server) -> list[Observed]:
        if one.is_warm:
            return await self._warm(one, server)
        answer = await self._ask(server, one.prompt, 2)
        steps = prompt_steps(answer.prompt_tokens or one.prompt, self.extent.step_tokens)
        return [Observed(steps, _first_s(answer), True, one.what)]

    async def _warm(self, one: Round, server: Server) -> list[Observed]:
        """A prompt whose beginning was asked before: it attends to more than it computes."""
        prompts = replace(self.prompts, seed=self._asked, shared_tokens=one.context)
        tokens = one.context + one.prompt
        await self._ask(server, tokens, 2, prompts)
        answer = await self._ask(server, tokens, 2, prompts)
        if not answer.cached_tokens or not answer.prompt_tokens:
            return []  # it has no such cache, or does not tell
        cached = answer.cached_tokens
        steps = prompt_steps(answer.prompt_tokens, self.extent.step_tokens, cached)
        return [Observed(steps, _first_s(answer), True, one.what)]

    async def _batches(self, one: Round) -> list[Observed]:
        """A batch at each server. A gateway spreads them, so there all of them are one."""
        output = STEPS - (-one.sequences * one.context // self.extent.step_tokens)
        bursts = await asyncio.gather(
            *(self._burst(at, one.sequences, one.context, output) for at in self._targets)
        )
        together = bursts if self.front is None else [_flat(bursts)]
        return _flat([self._decodes(one, answers) for answers in together])

    def _decodes(self, one: Round, answers: Sequence[Answer]) -> list[Observed]:
        """The steps in which all of them decode: behind the last first token."""
        first_s = max(answer.token_times_s[0] for answer in answers)
        last_s = min(answer.token_times_s[-1] for answer in answers)
        sent_s = min(answer.sent_s for answer in answers)
        whole = [one for one in answers if one.output_tokens == len(one.token_times_s)]
        ends = [[at for at in answer.token_times_s if first_s <= at <= last_s] for answer in whole]
        count = min(map(len, ends), default=0)
        if count <= LEAST_STEPS:
            return []
        step_s = _middle_mean(np.concatenate([np.diff(some) for some in ends]))
        self._settles_s[one.sequences, one.context] = first_s - sent_s + 3 * step_s
        said = [sum(at <= first_s for at in answer.token_times_s) for answer in answers]
        context = mean(answer.prompt_tokens or one.context for answer in answers)
        cached = one.sequences * (context + (count - 2) / 2 + mean(said) - 1)
        return [Observed((Counts(one.sequences, cached),), step_s, what=one.what)]

    async def _mixed(self, one: Round, server: Server) -> list[Observed]:
        """The time between two tokens of those who decode, of which the later is their step's."""
        settles_s = self._settles_s.get((one.sequences, one.context))
        if settles_s is None:
            return []
        decoding = asyncio.create_task(self._burst(server, one.sequences, one.context, 2 * STEPS))
        await asyncio.sleep(settles_s)
        newcomers = [await self._ask(server, one.prompt, 2) for _ in range(NEWCOMERS)]
        decoded = await decoding
        seen = [self._joined(one, newcomer, decoded) for newcomer in newcomers]
        return [joined for joined in seen if joined is not None]

    def _joined(self, one: Round, newcomer: Answer, decoded: Sequence[Answer]) -> Observed | None:
        """None where it came before the others were there, or when some had gone."""
        first_s, gaps_s, cached = newcomer.token_times_s[0], [], 0.0
        for answer in decoded:
            times_s = np.array(answer.token_times_s)
            later = int(np.abs(times_s - first_s).argmin())
            if not 0 < later < len(times_s) - 1:
                return None
            gaps_s.append(float(times_s[later] - times_s[later - 1]))
            cached += (answer.prompt_tokens or one.context) + later - 1
        (alone,) = prompt_steps(newcomer.prompt_tokens or one.prompt, self.extent.step_tokens)
        both = Counts(one.sequences, cached, alone.prompts, alone.pairs)
        return Observed((both,), median(gaps_s), what=one.what)

    async def _burst(self, server: Server, count: int, prompt: int, output: int) -> list[Answer]:
        return await asyncio.gather(*(self._ask(server, prompt, output) for _ in range(count)))

    async def _ask(
        self, server: Server, prompt: int, output: int, prompts: Prompts | None = None
    ) -> Answer:
        """A prompt that nobody has asked. Raises BenchError where there is no answer."""
        self._asked += 1
        text = (prompts or self.prompts).text(self._asked, Request(0.0, prompt, output))
        answer = await server.send(text, output, 0.0)
        if answer.error:
            raise BenchError(
                f"a request of {prompt} + {output} tokens failed: {answer.error} {answer.detail}",
                where=server.url,
                remedy="the server's log; a smaller --sequences or --context",
            )
        return answer


async def profile(
    urls: Sequence[str],
    extent: Extent,
    seconds: float,
    *,
    seed: int,
    through: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
) -> Profile:
    """What so many seconds show of the engines there. Raises SpecError, BenchError."""
    async with connect(TIMEOUT_S, api_key) as session:
        roots = [base_url(url) for url in urls]
        servers = [await _served(session, root, model, extent) for root in roots]
        front = await _served(session, base_url(through), model, extent) if through else None
        vocabulary = await Vocabulary.learn(servers[0].count_tokens)
        began_s = time.perf_counter()
        ping_s = median([await _ping_s(session, roots[0]) for _ in range(_PINGS)])
        caches = [await _cache(session, root) for root in roots]
        profiler = Profiler(servers, Prompts(vocabulary, seed), extent, front)
        passed_s = await profiler.passed_s()
        await profiler.run(began_s + seconds)
        took_s = time.perf_counter() - began_s
    name, seen = servers[0].model, tuple(profiler.seen)
    return Profile(name, seen, ping_s, passed_s, *min(caches), took_s=took_s)


async def _served(
    session: aiohttp.ClientSession, url: str, model: str | None, extent: Extent
) -> Server:
    """One model there, if it takes what is going to be asked."""
    served = choose(await models(session, url), model)
    if served.max_tokens is not None and extent.context_tokens + 4 * STEPS > served.max_tokens:
        raise SpecError(
            f"{served.name} holds {served.max_tokens} tokens",
            where="--context",
            remedy=f"at most {served.max_tokens - 4 * STEPS}",
        )
    return Server(session, url, served.name, "completions", ignore_eos=True)


def _flat(parts: Iterable[Iterable[T]]) -> list[T]:
    return [one for part in parts for one in part]


def _first_s(answer: Answer) -> float:
    return answer.token_times_s[0] - answer.sent_s


async def _ping_s(session: aiohttp.ClientSession, url: str) -> float:
    began_s = time.perf_counter()
    await models(session, url)
    return time.perf_counter() - began_s


async def _cache(session: aiohttp.ClientSession, url: str) -> tuple[int, int]:
    """Tokens of its cache and of a block, as vLLM's metrics tell; zeros where they do not."""
    try:
        async with session.get(f"{url}/metrics") as response:
            text = await response.text()
    except (aiohttp.ClientError, TimeoutError):
        return 0, 0
    line = re.search(r"^vllm:cache_config_info\{(.*)\}", text, re.MULTILINE)
    told = dict(re.findall(r'(\w+)="(\d+)"', line[1])) if line else {}
    block = int(told.get("block_size", 0))
    return block * int(told.get("num_gpu_blocks", 0)), block


def _middle_mean(values: NDArray[np.float64]) -> float:
    """The mean without the ends: in some steps the machine was busy with something else."""
    ranked = np.sort(values)
    cut = len(ranked) // 10
    return float(ranked[cut : len(ranked) - cut].mean())
