"""Rounds of starts. The replica is a script that converts, announces and waits."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ridgeline.errors import LaunchError
from ridgeline.launch.local import Child
from ridgeline.serving.bench import cold_start
from ridgeline.serving.bench.cold_start import (
    COLD,
    KEPT,
    LAZY,
    SPARE,
    WARM,
    Starts,
    measure,
    started,
)
from ridgeline.serving.control.start_stages import Timeline

SERVES = """
import os, pathlib, sys, time
began_s = time.monotonic()
from ridgeline.launch.local import announce
from ridgeline.launch.start_clock import StartClock, process_began_s, stage_event
clock = StartClock(process_began_s(os.getpid()), lambda *turn: announce(stage_event(*turn)))
clock.begin("weights")
kept = pathlib.Path(os.environ["RIDGELINE_CACHE"]) / "models" / "weights.safetensors"
if {converts} and not kept.exists():
    kept.parent.mkdir()
    kept.write_bytes(bytes(1000))
clock.begin("warm-up")
clock.end()
announce({{"event": "ready", "stages_s": clock.spent_s, "dtype": "bf16"}})
sys.stdin.read()
"""


@dataclass
class Script:
    """Stands in for a Launch."""

    name: str
    arguments: list[str]
    log: Path
    env: dict[str, str]
    code: str = ""

    @property
    def argv(self) -> list[str]:
        return [sys.executable, "-c", self.code]

    async def start(self) -> Child:
        return await Child.start(self.argv, env=self.env, log=self.log)

    def close(self) -> None:
        """Nothing was lent to it."""


def scripts(monkeypatch: pytest.MonkeyPatch, *, converts: bool) -> None:
    code = SERVES.format(converts=converts)
    monkeypatch.setattr(cold_start, "Launch", lambda *told: Script(*told, code))
    monkeypatch.setattr(cold_start, "_libraries", lambda: iter([]))
    monkeypatch.setattr(cold_start, "started_by_a_spare", started)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(400))
    return file


def test_a_round_is_a_start_of_each_kind_and_leaves_nothing(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts(monkeypatch, converts=True)
    told: list[str] = []
    found = measure(model, [], 2, tmp_path / "cache", lambda kind, start: told.append(kind))
    assert told == [COLD, LAZY, KEPT, WARM, SPARE] * 2
    assert found.weights_bytes == 1000  # of what was converted, not of the model's file
    assert found.disk_bytes_per_s > 0
    assert found.threaded_bytes_per_s > 0
    assert found.about["dtype"] == "bf16"
    assert found.stages() == ["process", "weights", "warm-up"]
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_folder_needs_no_conversion_and_has_no_cold_start_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts(monkeypatch, converts=False)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(bytes(400))
    (folder / "config.json").write_text("{}")
    found = measure(folder, [], 1, tmp_path / "cache")
    assert list(found.starts) == [LAZY, KEPT, WARM, SPARE]
    assert found.weights_bytes == 400


def test_only_a_lazy_start_reads_nothing_ahead(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts(monkeypatch, converts=True)
    launched = []
    script = cold_start.Launch
    monkeypatch.setattr(cold_start, "Launch", lambda *told: launched.append(told) or script(*told))
    measure(model, [], 1, tmp_path / "cache")
    assert [told[3].get("RIDGELINE_READ_AHEAD") for told in launched] == [
        None,
        "0",
        None,
        None,
        None,
    ]


async def test_a_replica_that_ends_before_it_is_ready_is_an_error(tmp_path: Path) -> None:
    dies = Script("m", [], tmp_path / "log", {}, "import sys; sys.exit('no memory')")
    with pytest.raises(LaunchError, match="no memory"):
        await started(dies)


def test_medians_and_whether_each_start_adds_up() -> None:
    runs = [Timeline({"weights": s}, s * 1.05) for s in (1.0, 2.0, 9.0)]
    found = Starts(starts={WARM: runs}, left_share=0.0)
    assert found.whole_s(WARM) == pytest.approx(2.1)
    assert found.stage_s(WARM, "weights") == 2.0
    assert found.stage_s(WARM, "import") == 0.0
    assert found.add_up
    assert found.is_dropped
    found.starts[COLD] = [Timeline({"weights": 1.0}, 1.0), Timeline({"weights": 0.5}, 1.0)]
    assert not found.add_up
    assert found.worst_share == 0.5


@pytest.mark.parametrize(("share", "is_dropped"), [(None, False), (0.5, False), (0.01, True)])
def test_what_stayed_in_memory_was_not_read_from_the_disk(share, is_dropped: bool) -> None:
    assert Starts(left_share=share).is_dropped is is_dropped
