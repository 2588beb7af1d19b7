import re
from pathlib import Path

import pytest

from ridgeline.errors import MissingExtraError, SpecError
from ridgeline.platform.plan import topics
from ridgeline.show import show
from ridgeline.topics import ask
from ridgeline.working import pictures
from ridgeline.working.edges import edge
from ridgeline.working.pictures import check_place, write_whole
from ridgeline.working.roofline_picture import draw_roofline
from ridgeline.working.sensitivity import sensitivity
from ridgeline.working.sweep import sweep
from ridgeline.working.sweep_picture import draw_sweep
from ridgeline.working.tornado_picture import draw_sensitivity


def words(path: Path) -> str:
    return " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text()))


def test_a_curve_names_its_axes_with_units_its_knee_and_what_binds(pump, tmp_path):
    path = tmp_path / "curve.svg"
    draw_sweep(sweep(pump, "batch=1:16:1"), path)
    text = words(path)
    assert "batch, steps" in text
    assert "total, s" in text
    assert "knee: 8 steps" in text
    assert "moving" in text
    assert "computing" in text


def test_a_trade_names_its_points_the_knee_and_the_objective(pump, tmp_path):
    path = tmp_path / "trade.svg"
    found = sweep(pump, "batch=1:64:1", value="total", versus="used", slo="total=20s")
    draw_sweep(found, path)
    text = words(path)
    assert "objective: 20 s" in text
    assert "within the objective up to" in text
    assert "40 steps" in text
    assert "used, s" in text


def test_a_roofline_has_both_rates_the_ridge_and_the_workload(tmp_path):
    topics()
    path = tmp_path / "roof.svg"
    asked = ask("phase-rooflines")
    draw_roofline(asked, path)
    text = words(path)
    for name in ("decode_flop_per_byte", "prefill_flop_per_byte", "ridge_flop_per_byte"):
        assert show(asked.answer.values[name]) in text
    assert "memory binds" in text
    assert "TB/s" in text
    assert "TFLOP/s" in text


def test_an_answer_without_a_roofline_says_what_can_be_drawn(pump, tmp_path):
    with pytest.raises(SpecError) as caught:
        draw_roofline(ask(pump), tmp_path / "roof.svg")
    assert "--sweep" in caught.value.remedy


def test_words_are_bars_with_their_values(pump, tmp_path):
    path = tmp_path / "bars.svg"
    draw_sweep(sweep(pump, "mode=fast,slow,broken"), path)
    assert "refused: it is broken" in words(path)
    assert "8 s" in words(path)


def test_a_tornado_names_inputs_and_both_ends(pump, tmp_path):
    path = tmp_path / "tornado.svg"
    draw_sensitivity(sensitivity(pump), path)
    text = words(path)
    assert "rate_bytes_per_s" in text
    assert "3.6 GB" in text
    assert "4.4 GB" in text


def test_the_same_picture_is_the_same_file(pump, tmp_path):
    one, other = tmp_path / "one.svg", tmp_path / "other.svg"
    for path in (one, other):
        draw_sweep(sweep(pump, "size=1GB:64GB"), path)
    assert one.read_bytes() == other.read_bytes()


def test_png_is_drawn_too(pump, tmp_path):
    draw_sweep(sweep(pump, "size=1GB:64GB"), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.jpg", "nowhere/a.svg"])
def test_another_kind_of_file_is_refused_before_the_work(tmp_path, name):
    with pytest.raises(SpecError) as caught:
        check_place(tmp_path / name)
    assert caught.value.remedy


def test_without_matplotlib_the_command_that_installs_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError) as caught:
        check_place(tmp_path / "a.svg")
    assert "pip install 'ridgeline[plot]'" in caught.value.remedy
    assert "pip install '.[plot]'" in caught.value.remedy


def test_what_cannot_be_written_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "a.svg"
    path.write_text("old")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SpecError, match="No space left") as caught:
        write_whole(path, b"new")
    assert caught.value.where == "--plot"
    assert [one.name for one in tmp_path.iterdir()] == ["a.svg"]
    assert path.read_text() == "old"


def test_where_a_ground_begins_is_the_exact_edge_and_not_the_middle_of_two_points(pump):
    found = sweep(pump, "batch=1,2,3,20")
    (index,) = found.changes
    assert (found.points[index - 1], found.points[index]) == (3, 20)
    assert edge(found, index) == 9  # 8 steps of 0.5 s are as long as twice 4 GB at 2 GB/s
