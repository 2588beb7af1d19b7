"""Other simulators beside ours: what they are given, and what is said where they fail."""

import csv
import json
import stat
from pathlib import Path

import pytest

import simulators
from ridgeline.errors import LaunchError
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.simulate.setup import Engine
from ridgeline.workload import Request

ENGINE = Engine(Machine(Plain(0.01, 0.0, 20_000.0), 1600))
REQUESTS = [Request(0.5, 1000, 0), Request(1.25, 100, 7, (41,))]
CASE = simulators.Case(REQUESTS, 16, 2, ENGINE)


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for a peer's Python: keeps what it was asked, and took half a second."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(
        "#!/bin/sh\n"
        f'printf %s "$3" > {tmp_path}/asked.json\n'
        f"cp trace.* {tmp_path}/\n"
        "echo some talk\necho 0.5\n"
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(simulators, "folder", lambda _: tmp_path)
    return tmp_path


def test_vidur_gets_all_requests_and_our_step_times(peer: Path) -> None:
    assert simulators.vidur_s(CASE) == 0.5
    asked = json.loads((peer / "asked.json").read_text())
    assert (asked["replicas"], asked["blocks"], asked["longest"]) == (2, 100, 1001)
    decode_ms = 10 + 1 / 20
    assert asked["layer_ms"] == pytest.approx(decode_ms / 32)
    assert asked["layer_token_ms"] == pytest.approx(1 / 20 / 32)
    with (peer / "trace.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["Time"] for row in rows] == ["0.5", "1.25"]
    assert [row["CompletionTokenCount"] for row in rows] == ["1", "7"]  # it knows no empty answer


def test_dynosim_gets_all_requests_with_blocks_of_its_format(peer: Path) -> None:
    assert simulators.dynosim_s(CASE) == 0.5
    rows = [json.loads(line) for line in (peer / "trace.jsonl").read_text().splitlines()]
    assert [row["timestamp"] for row in rows] == [500, 1250]
    assert [row["hash_ids"] for row in rows] == [[0, 1], [41]]
    asked = json.loads((peer / "asked.json").read_text())
    assert (asked["replicas"], asked["blocks"], asked["block_tokens"]) == (2, 100, 16)


def test_a_peer_that_fails_says_what_to_do(peer: Path) -> None:
    (peer / "bin" / "python").write_text("#!/bin/sh\necho no such thing >&2\nexit 3\n")
    with pytest.raises(LaunchError, match="no such thing") as raised:
        simulators.dynosim_s(CASE)
    assert "bench/peers.py ai-dynamo" in str(raised.value)
