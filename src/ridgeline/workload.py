"""Arrivals and sizes of requests, from a seed or from a recorded trace.

The law of this room: the same arguments give the same requests, everywhere. Arrival times,
prompt sizes and output sizes are drawn from separate streams of chance, so changing one leaves
the others as they were (common random numbers). The load generator asks for requests here, and
so will the simulator.
"""

import csv
import gzip
import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from ridgeline.errors import SpecError

DRAWN_AT_ONCE = 1024
COARSE_CLOCK_S = 0.5


@dataclass(frozen=True, slots=True)
class Request:
    """One request: when it comes, counted from the first, and how large it is.

    `blocks` names the leading blocks of the prompt. Equal leading ids mean equal leading text,
    which a prefix cache can find; blocks hold `Trace.block_tokens` tokens each.
    """

    at_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How requests are spread in time: the law of the gaps between them.

    `cv` is the coefficient of variation of the gaps (standard deviation over mean): 0 is evenly
    spaced, 1 is Poisson, more is burstier. Gaps are gamma distributed in between.
    """

    name: str
    cv: float

    def times_s(self, rate_per_s: float, seed: int) -> Iterator[float]:
        """Endless arrival times; the first comes after one gap. The mean gap is 1 / rate."""
        rng = np.random.default_rng([seed, 0])
        now_s = 0.0
        while True:
            for gap in self._gaps(rng):
                now_s += gap / rate_per_s
                yield now_s

    def _gaps(self, rng: np.random.Generator) -> list[float]:
        if self.cv == 0:
            return [1.0] * DRAWN_AT_ONCE
        shape = 1 / self.cv**2
        gaps: list[float] = rng.gamma(shape, 1 / shape, DRAWN_AT_ONCE).tolist()
        return gaps


@dataclass(frozen=True, slots=True)
class Sizes:
    """A distribution of token counts, at least 1: `kind` and its two parameters."""

    kind: str
    first: float
    second: float = 0.0

    def __str__(self) -> str:
        if self.kind == "fixed":
            return f"{self.first:g}"
        return f"{self.kind}:{self.first:g}:{self.second:g}"

    def draw(self, rng: np.random.Generator) -> Iterator[int]:
        """Endless sizes in tokens, rounded to whole numbers and never below 1."""
        while True:
            for size in np.rint(self._values(rng)).tolist():
                yield max(1, int(size))

    def _values(self, rng: np.random.Generator) -> Any:
        if self.kind == "uniform":
            return rng.integers(int(self.first), int(self.second) + 1, DRAWN_AT_ONCE)
        if self.kind == "normal":
            return rng.normal(self.first, self.second, DRAWN_AT_ONCE)
        if self.kind == "lognormal":
            variance = np.log1p(self.second**2)  # of the logarithm; `second` is the CV
            mean = np.log(self.first) - variance / 2
            return rng.lognormal(mean, np.sqrt(variance), DRAWN_AT_ONCE)
        return np.full(DRAWN_AT_ONCE, self.first)


def parse_arrivals(text: str, *, where: str = "--arrivals") -> Arrivals:
    """Read "poisson", "uniform" or "gamma:CV"; raises SpecError."""
    kind, _, rest = text.partition(":")
    if kind == "poisson" and not rest:
        return Arrivals("Poisson", 1.0)
    if kind == "uniform" and not rest:
        return Arrivals("evenly spaced", 0.0)
    cv = _number(rest)
    if kind == "gamma" and cv is not None and 0 < cv <= 100:
        return Arrivals(f"gamma (CV {cv:g})", cv)
    raise SpecError(
        f'"{text}" is not a way to arrive',
        where=where,
        remedy='"poisson", "uniform", or "gamma:2" (the number is the CV of the gaps, over 0)',
    )


def parse_sizes(text: str, *, where: str) -> Sizes:
    """Read "128", "uniform:LOW:HIGH", "normal:MEAN:SD" or "lognormal:MEAN:CV"; raises SpecError."""
    kind, *rest = text.split(":")
    fixed = _number(kind)
    if fixed is not None and not rest and fixed >= 1 and fixed == int(fixed):
        return Sizes("fixed", fixed)
    numbers = [_number(part) for part in rest]
    if len(numbers) == 2 and numbers[0] is not None and numbers[1] is not None:
        low, high = numbers[0], numbers[1]
        if (kind == "uniform" and 1 <= low <= high) or (
            kind in ("normal", "lognormal") and low >= 1 and high >= 0
        ):
            return Sizes(kind, low, high)
    raise SpecError(
        f'"{text}" is not a number of tokens or a distribution',
        where=where,
        remedy='"128", "uniform:64:256", "normal:128:32" (mean, SD) or "lognormal:512:1.5" '
        "(mean, CV)",
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def synthetic(
    arrivals: Arrivals, prompt: Sizes, output: Sizes, *, rate_per_s: float, seed: int
) -> Iterator[Request]:
    """Endless requests of a seeded workload, in order of arrival."""
    times = arrivals.times_s(rate_per_s, seed)
    for at_s, request in zip(times, sized(prompt, output, seed=seed), strict=False):
        yield replace(request, at_s=at_s)


def sized(prompt: Sizes, output: Sizes, *, seed: int) -> Iterator[Request]:
    """Endless requests that have sizes and no time (all at 0): what a closed loop needs."""
    prompts = prompt.draw(np.random.default_rng([seed, 1]))
    outputs = output.draw(np.random.default_rng([seed, 2]))
    for prompt_tokens, output_tokens in zip(prompts, outputs, strict=False):
        yield Request(0.0, prompt_tokens, output_tokens)


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded workload. `timed` is False where the file holds lengths and no arrivals.

    `block_tokens` is the size of the prompt blocks that `Request.blocks` names, 0 without them.
    `notes` says what was done to the rows, in words for the report.
    """

    name: str
    requests: tuple[Request, ...]
    block_tokens: int
    timed: bool
    notes: tuple[str, ...] = ()


Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Format:
    """One layout of trace files: which fields tell it, and how a row is read."""

    fields: tuple[str, ...]
    read: Callable[[Row], Request]
    block_tokens: int = 0
    timed: bool = True
    chained: bool = True


def _clock_s(text: str) -> float:
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _blocks(row: Row) -> tuple[int, ...]:
    return tuple(int(block) for block in row["hash_ids"])


FORMATS = (
    Format(  # Azure 2023 and 2024; the wall clock is only ever used as a difference
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        lambda row: Request(
            _clock_s(row["TIMESTAMP"]), int(row["ContextTokens"]), int(row["GeneratedTokens"])
        ),
    ),
    Format(  # BurstGPT
        ("Timestamp", "Request tokens", "Response tokens"),
        lambda row: Request(
            float(row["Timestamp"]), int(row["Request tokens"]), int(row["Response tokens"])
        ),
    ),
    Format(  # lengths only, as vidur publishes them
        ("num_prefill_tokens", "num_decode_tokens"),
        lambda row: Request(0.0, int(row["num_prefill_tokens"]), int(row["num_decode_tokens"])),
        timed=False,
    ),
    Format(  # Qwen-Bailian: seconds, and each block hashed alone
        ("chat_id", "timestamp", "input_length", "output_length", "hash_ids"),
        lambda row: Request(
            float(row["timestamp"]), row["input_length"], row["output_length"], _blocks(row)
        ),
        block_tokens=16,
        chained=False,
    ),
    Format(  # ShareGPT replays of LLMServingSim, with block ids
        ("timestamp_ms", "input_length", "output_length", "hash_ids"),
        lambda row: Request(
            row["timestamp_ms"] / 1e3, row["input_length"], row["output_length"], _blocks(row)
        ),
        block_tokens=16,
    ),
    Format(  # Mooncake
        ("timestamp", "input_length", "output_length", "hash_ids"),
        lambda row: Request(
            row["timestamp"] / 1e3, row["input_length"], row["output_length"], _blocks(row)
        ),
        block_tokens=512,
    ),
)


def read_trace(
    path: Path, *, speed: float = 1.0, limit: int | None = None, where: str = "--trace"
) -> Trace:
    """Read a trace file (.csv or .jsonl, plain, .gz or .xz): its first `limit` rows.

    Requests come out ordered, the first at 0 s, times divided by `speed`. Rows without a prompt
    or an output are left out. Where the recording clock ticked in steps of half a second or more
    (Mooncake's: 3 s), requests that share an instant are spread evenly inside their step, since
    a burst that never was would inflate every latency. Raises SpecError for a file that is
    missing, torn or of no known layout.
    """
    try:
        with _open_text(path) as lines:
            layout, rows = _rows(path, lines, where)
            read = [_request(layout, row, number, path) for number, row in islice(rows, limit)]
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} cannot be read: {error}", where=where) from error
    kept = sorted((r for r in read if r.prompt_tokens > 0 and r.output_tokens > 0), key=_at_s)
    if not kept:
        raise SpecError(f"{path} holds no requests", where=where)
    notes = []
    if len(kept) < len(read):
        notes.append(f"{len(read) - len(kept)} rows without prompt or output left out")
    if not layout.chained:
        kept = _chain(kept)
    spread = _spread_ticks(kept) if layout.timed else kept
    if spread is not kept:
        notes.append("requests recorded at one tick of a coarse clock were spread over the tick")
    first_s = spread[0].at_s
    requests = tuple(replace(r, at_s=(r.at_s - first_s) / speed) for r in spread)
    return Trace(path.name, requests, layout.block_tokens, layout.timed, tuple(notes))


def _at_s(request: Request) -> float:
    return request.at_s


def _open_text(path: Path) -> IO[str]:
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    lines: IO[str] = opener(path, "rt", encoding="utf-8", newline="")
    return lines


def _rows(path: Path, lines: IO[str], where: str) -> tuple[Format, Iterator[tuple[int, Row]]]:
    """The layout that the first row shows, and all rows with their numbers (from 1)."""
    if ".csv" in path.suffixes:
        rows: Iterator[Row] = iter(csv.DictReader(lines))
    else:
        rows = (
            _json_row(line, path, number) for number, line in enumerate(lines, 1) if line.strip()
        )
    first = next(rows, None)
    if first is None:
        raise SpecError(f"{path} is empty", where=where)
    for layout in FORMATS:
        if all(name in first for name in layout.fields):
            numbered = enumerate(_again(first, rows), 1)
            return layout, numbered
    raise SpecError(
        f"{path} has no known layout; its fields are {', '.join(map(str, first))}",
        where=where,
        remedy="; ".join(", ".join(layout.fields) for layout in FORMATS),
    )


def _again(first: Row, rest: Iterator[Row]) -> Iterator[Row]:
    yield first
    yield from rest


def _json_row(line: str, path: Path, number: int) -> Row:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise SpecError("is not a JSON object", where=f"{path}, row {number}")
    return row


def _request(layout: Format, row: Row, number: int, path: Path) -> Request:
    try:
        return layout.read(row)
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(
            f"cannot be read: {error!r}",
            where=f"{path}, row {number}",
            remedy=f"each row needs {', '.join(layout.fields)}",
        ) from error


def _chain(requests: list[Request]) -> list[Request]:
    """Rename blocks so that an id stands for the block and everything before it."""
    names: dict[tuple[int, int], int] = {}
    chained = []
    for request in requests:
        before = -1
        blocks = []
        for block in request.blocks:
            before = names.setdefault((before, block), len(names))
            blocks.append(before)
        chained.append(replace(request, blocks=tuple(blocks)))
    return chained


def _spread_ticks(requests: list[Request]) -> list[Request]:
    """Spread requests of one instant over the clock's step, where that step is coarse."""
    instants = sorted({r.at_s for r in requests})
    step_s = min((b - a for a, b in pairwise(instants)), default=0.0)
    if step_s < COARSE_CLOCK_S or len(instants) == len(requests):
        return requests
    sharing: dict[float, list[Request]] = {}
    for request in requests:
        sharing.setdefault(request.at_s, []).append(request)
    return [
        replace(request, at_s=at_s + step_s * place / len(group))
        for at_s, group in sharing.items()
        for place, request in enumerate(group)
    ]
