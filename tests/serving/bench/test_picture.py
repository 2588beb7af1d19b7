from pathlib import Path

import pytest

from ridgeline.errors import SpecError
from ridgeline.serving.bench.compare import findings
from ridgeline.serving.bench.picture import check_place, draw_run, draw_sweep
from ridgeline.serving.bench.sweep import Sweep

PNG = b"\x89PNG\r\n"


@pytest.fixture
def found(made_report) -> Sweep:
    levels = tuple(
        made_report(load, good=good, tokens_per_s=tokens, ttft_s=ttft)
        for load, good, tokens, ttft in (
            (1, 100, 95, 0.08), (2, 100, 190, 0.09), (4, 99, 370, 0.12),
            (5.7, 96, 510, 0.2), (8, 41, 560, 0.45),
        )
    )  # fmt: skip
    return Sweep(
        levels, 5.7, "goodput 41.0 % is under 90 %", 0.9, False, False, tuple(findings(levels, 0.9))
    )


def test_a_sweep_and_a_run_become_pictures(tmp_path, found):
    draw_sweep(found, tmp_path / "sweep.png")
    draw_run(found.levels[0], tmp_path / "run.png")
    for name in ("sweep.png", "run.png"):
        assert (tmp_path / name).read_bytes().startswith(PNG)


def test_a_sweep_without_a_knee_or_measures_is_drawn_too(tmp_path, made_report):
    lost = made_report(4, good=0, ttft=None, scheduled_ttft=None, tpot=None, slo=None)
    draw_sweep(Sweep((lost,), None, "none", 0.9, False, False, ()), tmp_path / "none.png")
    assert (tmp_path / "none.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("name", ["knee.svg", "absent/knee.png"])
def test_a_place_where_no_png_can_be_is_refused_before_the_run(tmp_path: Path, name):
    with pytest.raises(SpecError) as refused:
        check_place(tmp_path / name)
    assert refused.value.where == "--plot"
