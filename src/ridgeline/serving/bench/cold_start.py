"""How long a replica takes to start on this machine, stage by stage, cold and warm.

Each round starts real replicas through `control.replicas`, as the platform does, and stops each
once it is ready:

    cold   nothing converted yet, nothing of model and libraries in memory
    lazy   the converted weights are on the disk, nothing in memory, weights read when used
    kept   as lazy, but the weights are read ahead while the process imports, as always else
    warm   the converted weights are on the disk and in memory, as at a restart
    spare  as warm, by a process that has imported all and waits (`control.spares`); not for
           embeddings

For a model that needs no conversion `cold` and `kept` are the same; it has no `cold`. Called by
`cli.bench_cold_start`.
"""

import asyncio
import importlib.util
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ridgeline.serving.bench.page_cache import drop, read_bytes_per_s, resident_share
from ridgeline.serving.control.replicas import Launch, ManagedReplica, Startable
from ridgeline.serving.control.spares import SparedLaunch, Spares
from ridgeline.serving.control.start_stages import Timeline, timeline
from ridgeline.serving.engine.encoder_files import is_encoder
from ridgeline.serving.engine.read_ahead import THREADS, VARIABLE

COLD, LAZY, KEPT, WARM, SPARE = "cold", "lazy", "kept", "warm", "spare"
_STOP_S = 30.0
#: No start that is measured takes so long.
_MOST_S = 600.0
#: Of what was dropped, the share that may still be in memory for a start to count as cold.
_LEFT = 0.05


@dataclass(slots=True)
class Starts:
    """What was measured. `starts` by kind; `left_share` of the model stayed in memory when dropped.

    `weights_bytes` are those that a start after the first reads. `about` is the last "ready".
    """

    weights_bytes: int = 0
    disk_bytes_per_s: float = 0.0
    threaded_bytes_per_s: float = 0.0
    left_share: float | None = None
    starts: dict[str, list[Timeline]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def is_dropped(self) -> bool:
        """Whether what was to be read from the disk really was."""
        return self.left_share is not None and self.left_share <= _LEFT

    def whole_s(self, kind: str) -> float:
        """A start's time in the median."""
        return median(one.whole_s for one in self.starts[kind])

    def sum_s(self, kind: str) -> float:
        """A start's stages together, in the median."""
        return median(one.sum_s for one in self.starts[kind])

    def stage_s(self, kind: str, stage: str) -> float:
        """A stage's time in the median."""
        return median(one.stages_s.get(stage, 0.0) for one in self.starts[kind])

    def stages(self) -> list[str]:
        """Every stage that was seen, in the order of a start."""
        seen = [stage for one in self.starts.values() for start in one for stage in start.stages_s]
        return list(dict.fromkeys(seen))

    @property
    def worst_share(self) -> float:
        """Sum over whole of the start whose stages add up worst."""
        shares = [one.sum_s / one.whole_s for runs in self.starts.values() for one in runs]
        return max(shares, key=lambda share: abs(1 - share))

    @property
    def add_up(self) -> bool:
        """Whether the stages of each single start sum to within 10 % of it."""
        return all(one.adds_up for runs in self.starts.values() for one in runs)


def measure(
    model: Path,
    options: Sequence[str],
    rounds: int,
    folder: Path,
    told: Callable[[str, Timeline], None] = lambda _kind, _start: None,
) -> Starts:
    """Start a model so many times of each kind. `options` are those of `ridgeline serve`.

    `folder` is where converted weights lie meanwhile: on the disk that is to be measured.
    Raises ModelError or LaunchError where it does not start.
    """
    found = Starts()
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder, prefix="cold-start-") as cache:
            _round(found, model, options, Path(cache), told)
    return found


def _round(
    found: Starts,
    model: Path,
    options: Sequence[str],
    cache: Path,
    told: Callable[[str, Timeline], None],
) -> None:
    def start(kind: str) -> None:
        env = {"RIDGELINE_CACHE": str(cache), **({VARIABLE: "0"} if kind == LAZY else {})}
        arguments = ["serve", str(model), "--host", "127.0.0.1", "--port", "0", *options]
        launch = Launch("cold-start", arguments, cache / "log", env)
        heard = asyncio.run(started_by_a_spare(launch) if kind == SPARE else started(launch))
        found.starts.setdefault(kind, []).append(heard.start)
        found.about = heard.about
        told(kind, heard.start)

    source = _files(model)
    if model.is_file():
        drop([*source, *_libraries()])
        start(COLD)
    converted = [file for file in cache.rglob("*.safetensors") if file.is_file()]
    weights = converted or [file for file in source if file.suffix == ".safetensors"] or source
    for kind in (LAZY, KEPT):
        drop([*source, *converted, *_libraries()])
        start(kind)
    start(WARM)
    if not is_encoder(model):
        start(SPARE)
    found.weights_bytes = sum(file.stat().st_size for file in weights)
    _time_the_disk(found, weights)


def _time_the_disk(found: Starts, weights: Sequence[Path]) -> None:
    """How fast the weights are read, each time with nothing of them in memory; the best counts."""
    drop(weights)
    found.left_share = resident_share(max(weights, key=lambda file: file.stat().st_size))
    drop(weights)  # looking may have read ahead
    found.disk_bytes_per_s = max(found.disk_bytes_per_s, read_bytes_per_s(weights))
    drop(weights)
    threaded = read_bytes_per_s(weights, THREADS)
    found.threaded_bytes_per_s = max(found.threaded_bytes_per_s, threaded)


@dataclass(frozen=True, slots=True)
class Heard:
    """One start, and what the replica said of itself when it was ready."""

    start: Timeline
    about: dict[str, Any]


async def started_by_a_spare(launch: Launch) -> Heard:
    """The same, once a spare waits."""
    spares = Spares(1, launch.log, launch.env)
    try:
        spares.fill()
        await spares.filled()
        return await started(SparedLaunch(launch, spares))
    finally:
        await spares.close()


async def started(launch: Startable) -> Heard:
    """Start a replica, and stop it as soon as it is ready.

    Raises ModelError or LaunchError where it does not get there.
    """
    listening = _Listening()
    replica = ManagedReplica(launch, listening, _MOST_S)
    running = asyncio.create_task(replica.run())
    ready = asyncio.create_task(listening.ready.wait())
    try:
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        await replica.stop(_STOP_S)
        await running
    finally:
        for task in (running, ready):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    told = timeline(listening.events)
    assert told is not None, "it was ready"
    return Heard(told, dict(listening.events[-1]))


class _Listening:
    """Keeps what one replica says until it is ready."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.ready = asyncio.Event()

    async def listens(self, replica: str, url: str) -> None:
        """Nobody asks it anything."""

    async def said(self, replica: str, event: Mapping[str, Any]) -> None:
        self.events.append({**event, "replica": replica})
        if event["event"] == "ready":
            self.ready.set()

    async def died(self, replica: str, reason: str) -> None:
        """It was told to."""


def _files(model: Path) -> list[Path]:
    """All files of a model."""
    return [file for file in model.rglob("*") if file.is_file()] if model.is_dir() else [model]


def _libraries() -> Iterator[Path]:
    """The libraries that take the longest to read: torch's."""
    torch = importlib.util.find_spec("torch")
    for place in (torch.submodule_search_locations or []) if torch else []:
        yield from (Path(place) / "lib").glob("*.so*")
