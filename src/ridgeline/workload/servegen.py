"""ServeGen's clients: who asks how often in each window of a day, and how large his requests are.

A folder or an archive of it holds two files for each client: `chunk-N-trace.csv` has windows with a
rate, a coefficient of variation and the law of the gaps (Gamma or Weibull, with its shape first);
`chunk-N-dataset.json` has, a few times a day, how likely each number of tokens is. Requests are
drawn from both: a client is a renewal process whose clock runs as fast as his rate, so that nothing
is lost between windows. Source: Xiang et al., ServeGen, arXiv:2505.09999, 2025.
"""

import csv
import heapq
import json
import re
import tarfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import gamma
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.errors import SpecError
from ridgeline.workload.numbers import seconds, tokens
from ridgeline.workload.request import Request
from ridgeline.workload.rows import MOST_ROW_CHARS, MOST_ROWS

_FILE = re.compile(r"chunk-(\d{1,6})-(trace\.csv|dataset\.json)")
_WINDOW_S = 600.0
_MOST_FILES = 20_000
_STREAM = 4  # of chance, beside arrivals and sizes of drawn workloads
_SHAPES = (0.01, 1000.0)
#: Parts of a prompt; all of them are computed, and are counted as its tokens.
_TEXT = ("input_tokens", "text_tokens")
_MEDIA = ("image_tokens", "audio_tokens", "video_tokens")
_OUTPUT = "output_tokens"


@dataclass(frozen=True, slots=True)
class Law:
    """Numbers of tokens with what is added up of their shares, the last 1."""

    values: NDArray[np.int64]
    upto: NDArray[np.float64]

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """So many."""
        return self.values[np.searchsorted(self.upto, rng.random(count), side="right")]


@dataclass(frozen=True, slots=True)
class Window:
    """From `at_s` for `lasts_s`: requests a second, and the law of the gaps (its mean is 1)."""

    at_s: float
    lasts_s: float
    rate_per_s: float
    pattern: str
    shape: float

    def gaps(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Gaps on a clock on which one request comes in a unit."""
        if self.pattern == "Weibull":
            return rng.weibull(self.shape, count) / gamma(1 + 1 / self.shape)
        return rng.gamma(self.shape, 1 / self.shape, count)


@dataclass(frozen=True, slots=True)
class Client:
    """One of them: windows in order, and from when on his requests are how large."""

    number: int
    windows: tuple[Window, ...]
    since_s: tuple[float, ...]
    sizes: tuple[Mapping[str, Law], ...]

    def requests(self, seed: int) -> Iterator[Request]:
        """His, in order."""
        rng = np.random.default_rng([seed, _STREAM, self.number])
        tenant, due = f"client-{self.number}", -1.0  # when the next comes, on his own clock
        for window in self.windows:
            units = window.rate_per_s * window.lasts_s
            if not units:
                continue
            if due < 0:
                due = float(window.gaps(rng, 1)[0])
            times, due = _until(units, due, partial(window.gaps, rng))
            law = self.sizes[max(0, bisect_right(self.since_s, window.at_s) - 1)]
            prompts = sum(law[part].draw(rng, len(times)) for part in law if part != _OUTPUT)
            outputs = law[_OUTPUT].draw(rng, len(times))
            at_s = window.at_s + times / window.rate_per_s
            for row in zip(
                at_s.tolist(), np.asarray(prompts).tolist(), outputs.tolist(), strict=True
            ):
                if row[1] > 0 and row[2] > 0:
                    yield Request(*row, tenant=tenant)


def requests(clients: Iterable[Client], seed: int) -> Iterator[Request]:
    """All that all of them ask, in order."""
    return heapq.merge(*(one.requests(seed) for one in clients), key=lambda one: one.at_s)


def notes(clients: Iterable[Client]) -> tuple[str, ...]:
    """What everybody should know of these requests."""
    some = list(clients)
    told = [f"requests of {len(some)} clients were drawn from their distributions"]
    parts = {part for one in some for law in one.sizes for part in law}
    if media := [part.removesuffix("_tokens") for part in _MEDIA if part in parts]:
        told.append(f"tokens of {', '.join(media)} count as tokens of the prompt; encoders do not")
    return tuple(told)


def of_folder(path: Path, where: str) -> list[Client]:
    """The clients of a folder, wherever in it their files are."""
    files = sorted(one for one in path.rglob("chunk-*") if _FILE.fullmatch(one.name))
    if len(files) > _MOST_FILES:
        raise SpecError(f"{path} has over {_MOST_FILES:,} files", where=where)
    texts: dict[str, str] = {}
    for one in files:
        _add(texts, one.name, one.read_bytes(), path)
    return _clients(texts, path, where)


def of_archive(archive: tarfile.TarFile, path: Path, where: str) -> list[Client]:
    """The clients of an archive; nothing of it is written anywhere."""
    texts: dict[str, str] = {}
    for member in archive:
        name = member.name.rpartition("/")[2]
        if not member.isfile() or not _FILE.fullmatch(name):
            continue
        if member.size > MOST_ROW_CHARS or len(texts) >= _MOST_FILES:
            raise SpecError("is too large, or one too many", where=f"{path}, {member.name}")
        file = archive.extractfile(member)
        assert file is not None, name
        _add(texts, name, file.read(), path)
    return _clients(texts, path, where)


def _add(texts: dict[str, str], name: str, data: bytes, path: Path) -> None:
    where = f"{path}, {name}"
    if name in texts:
        remedy = "the folder of one model"
        raise SpecError("is there twice", where=where, remedy=remedy)
    try:
        texts[name] = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError("is not UTF-8 text", where=where) from error


def _clients(texts: Mapping[str, str], path: Path, where: str) -> list[Client]:
    numbers = sorted({int(found[1]) for name in texts if (found := _FILE.fullmatch(name))})
    if not numbers:
        raise SpecError(
            f"{path} holds no trace",
            where=where,
            remedy="ServeGen: chunk-N-trace.csv and chunk-N-dataset.json for each client",
        )
    clients = []
    for number in numbers:
        names = f"chunk-{number}-trace.csv", f"chunk-{number}-dataset.json"
        for name in names:
            if name not in texts:
                raise SpecError("is missing", where=f"{path}, {name}")
        windows = _windows(texts[names[0]], f"{path}, {names[0]}")
        since_s, sizes = _sizes(texts[names[1]], f"{path}, {names[1]}")
        clients.append(Client(number, windows, since_s, sizes))
    most = sum(one.rate_per_s * one.lasts_s for client in clients for one in client.windows)
    if most > MOST_ROWS:
        raise SpecError(f"{path} asks for {most:,.0f} requests, over {MOST_ROWS:,}", where=where)
    return clients


def _windows(text: str, where: str) -> tuple[Window, ...]:
    rows = [row for row in csv.reader(text.splitlines()) if row]
    starts = []
    found: list[Window] = []
    for number, row in enumerate(rows, 1):
        try:
            at_s, rate, _, pattern, shape, _ = row
            starts.append(seconds(at_s))
            per_s = seconds(rate)
            known = pattern in ("Gamma", "Weibull") if per_s else True
            law = seconds(shape) if per_s else 1.0
        except ValueError as error:
            raise _unread(where, number, str(error)) from error
        if per_s < 0 or not known or not _SHAPES[0] <= law <= _SHAPES[1]:
            raise _unread(where, number, f"rate {rate}, {pattern or 'no pattern'}, {shape}")
        if len(starts) > 1 and starts[-1] <= starts[-2]:
            raise _unread(where, number, "its time is not after the one before it")
        found.append(Window(starts[-1], 0.0, per_s, pattern, law))
    lasts = [b - a for a, b in pairwise(starts)]
    lasts.append(lasts[-1] if lasts else _WINDOW_S)
    return tuple(
        Window(one.at_s, long, one.rate_per_s, one.pattern, one.shape)
        for one, long in zip(found, lasts, strict=True)
    )


def _unread(where: str, number: int, why: str) -> SpecError:
    return SpecError(
        f"cannot be read as ServeGen: {why}",
        where=f"{where}, line {number}",
        remedy="start_s, rate, cv, Gamma or Weibull, its shape and its scale",
    )


def _sizes(text: str, where: str) -> tuple[tuple[float, ...], tuple[Mapping[str, Law], ...]]:
    try:
        windows = json.loads(text)
        some = ((seconds(at), one) for at, one in windows.items() if _has_sizes(one))
        told = [(at_s, _laws(one)) for at_s, one in sorted(some, key=lambda pair: pair[0])]
        if not told:
            raise ValueError("it has no sizes")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SpecError(
            f"cannot be read as ServeGen: {error}",
            where=where,
            remedy='{"0": {"input_tokens": "{45: 0.7, 46: 0.3}", "output_tokens": ...}, ...}',
        ) from error
    return tuple(at for at, _ in told), tuple(law for _, law in told)


def _has_sizes(fields: Mapping[str, Any]) -> bool:
    """Nobody asked in a window whose distributions are empty."""
    return bool(fields.get(_OUTPUT, "{}") != "{}")


def _laws(fields: Mapping[str, Any]) -> dict[str, Law]:
    wanted = [part for part in (*_TEXT, *_MEDIA) if part in fields]
    if not any(part in wanted for part in _TEXT):
        raise ValueError("it has neither input_tokens nor text_tokens")
    laws = {part: _law(fields[part]) for part in (*wanted, _OUTPUT)}
    return {part: law for part, law in laws.items() if part not in _MEDIA or law.values.any()}


def _law(text: object) -> Law:
    """`{45: 0.25, 46: 0.75}`; shares need not add up to 1."""
    if not isinstance(text, str) or not (text.startswith("{") and text.endswith("}")):
        raise ValueError("a distribution is no {tokens: share, ...}")
    pairs = [pair.partition(":") for pair in text[1:-1].split(",")]
    values = np.array([tokens(value.strip()) for value, _, _ in pairs], np.int64)
    shares = np.array([seconds(share) for _, _, share in pairs])
    if (shares < 0).any() or not shares.sum() > 0:
        raise ValueError("shares are not positive")
    upto = np.cumsum(shares / shares.sum())
    upto[-1] = 1.0
    return Law(values, upto)


def _until(units: float, due: float, gaps: Any) -> tuple[NDArray[np.float64], float]:
    """When requests come in so many units, the first when it is `due`; and when the next does."""
    times = np.array([due])
    while times[-1] < units:
        more = gaps(int((units - times[-1]) * 1.1) + 16)
        times = np.concatenate([times, times[-1] + np.cumsum(more)])
    within = int(np.searchsorted(times, units))
    return times[:within], float(times[within]) - units
