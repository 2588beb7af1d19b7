import json

import pytest
from click.testing import CliRunner

from ridgeline.cli.bench_cold_start import as_dict, cold_start, lines, plan_of, savings

pytest.importorskip("torch", reason="the engine needs it")
pytest.importorskip("aiohttp", reason="replicas need it")

from ridgeline.serving.bench import cold_start as measuring
from ridgeline.serving.bench.cold_start import COLD, KEPT, LAZY, SPARE, WARM, Starts
from ridgeline.serving.control.start_stages import Timeline


def start(weights_s: float, load_s: float, *, missing_s: float = 0.0) -> Timeline:
    stages = {"process": 0.4, "import": 1.6, "weights": weights_s, "load": load_s, "warm-up": 0.2}
    return Timeline(stages, sum(stages.values()) + missing_s)


def found(missing_s: float = 0.0) -> Starts:
    return Starts(
        weights_bytes=270_000_000,
        disk_bytes_per_s=2.7e8,
        threaded_bytes_per_s=5.4e8,
        left_share=0.0,
        starts={
            COLD: [start(5.0, 0.3)],
            LAZY: [start(0.1, 1.3)],
            KEPT: [start(0.1, 0.8)],
            WARM: [start(0.1, 0.3, missing_s=missing_s)] * 3,
            SPARE: [Timeline({"weights": 0.1, "load": 0.3, "warm-up": 0.2}, 0.6)],
        },
        about={"dtype": "bf16", "threads": 2, "kernels": "C++, amx"},
    )


def test_the_plan_of_a_start_from_the_disk_has_this_machines_terms() -> None:
    planned = plan_of(found())
    # 2.0 s before the weights, 1.0 s from the disk, 0.4 s into the kernels, 0.2 s of warm-up.
    assert planned["start_s"].value == pytest.approx(3.6)
    assert planned["weights_bytes"].value == pytest.approx(270e6)
    assert found().whole_s(LAZY) == pytest.approx(3.6)


def test_what_each_lever_saves_is_the_difference_of_two_measurements() -> None:
    saved = dict(savings(found()))
    assert saved["converted weights kept"] == pytest.approx(7.5 - 3.1)
    assert saved["weights read ahead, beside the import"] == pytest.approx(0.5)
    assert saved["model and libraries in memory"] == pytest.approx(0.5)
    assert saved["a process that waits with all imported"] == pytest.approx(2.0)


def test_the_answer_comes_first_then_stages_beside_the_whole_then_the_fix() -> None:
    shown = lines("smollm2", found(), plan_of(found()))
    text = [" ".join(line.split()) for line in shown]
    told = "warm 2.60 s, 62 % of it import; cold 7.50 s, lazy 3.60 s, kept 3.10 s, spare 0.60 s"
    assert " ".join(text).startswith(told)
    assert "seconds cold lazy kept warm spare" in text
    assert "weights 5.00 0.10 0.10 0.10 0.10" in text
    assert "sum 7.50 3.60 3.10 2.60 0.60" in text
    assert "measured 7.50 3.60 3.10 2.60 0.60" in text
    assert any(line.startswith("Fix first: import.") for line in text)
    assert all(len(line) <= 80 for line in shown)
    assert any("3.60 s, measured (lazy) 3.60 s: 1.00 of the plan" in line for line in text)
    assert any("0.27 GB/s by one thread, 0.54 GB/s by 4" in line for line in text)


def test_a_disk_that_was_memory_is_said() -> None:
    measured = found()
    measured.left_share = 1.0
    assert "100% of the weights stayed in memory" in lines("m", measured, plan_of(measured))[-1]


@pytest.mark.parametrize(("missing_s", "status"), [(0.1, 0), (1.0, 1)])
def test_the_status_is_1_where_stages_are_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path, missing_s: float, status: int
) -> None:
    (tmp_path / "m.gguf").touch()
    monkeypatch.setattr(measuring, "measure", lambda *_: found(missing_s))
    result = CliRunner().invoke(cold_start, [str(tmp_path / "m.gguf"), "--json"])
    assert result.exit_code == status, result.output
    told = json.loads(result.stdout)
    assert told["add_up"] is (status == 0)
    assert told == json.loads(json.dumps(as_dict(found(missing_s), plan_of(found(missing_s)))))
