"""TPU or GPU: ridges, the layout that sends least, and what changes."""

import itertools

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


@pytest.mark.proves("S002")
@pytest.mark.parametrize(("chip", "ridge"), [("tpu-v6e", 560), ("tpu-v7", 313), ("h100-sxm", 295)])
def test_ridges_are_560_313_and_295(chip, ridge):
    values = ask("chip-mesh", {"accelerator": chip, "mesh_x": 4, "mesh_y": 4}).answer.values
    assert values["ridge"].value == pytest.approx(ridge, rel=0.01)


def sent_by_hand(tokens, x, y, link=400e9, hidden=8192, inner=28672):
    """Seconds of each layout for one gated block of a 70B in bf16, from what each chip sends."""
    return {
        "splitting along one axis": 2 * tokens * hidden * 2 / link,
        "splitting into tiles of the mesh": 2 * tokens * (hidden / x + inner / y) * 2 / (link / 2),
        "gathering the weights": 3 * hidden * inner * 2 / link,
    }


@pytest.mark.proves("S002")
def test_the_layout_is_the_one_that_sends_least():
    chosen = set()
    for tokens, (x, y) in itertools.product((64, 512, 65536, 2**20), ((1, 1), (4, 4), (8, 32))):
        given = {"batch_tokens": f"{tokens} tokens", "mesh_x": x, "mesh_y": y}
        answer = ask("chip-mesh", given).answer
        hand = sent_by_hand(tokens, x, y)
        best = min(hand, key=hand.get)
        assert f"{best} sends least" in answer.says
        assert answer.values["exchange_s"].value == pytest.approx(hand[best], rel=1e-9)
        chosen.add(best)
    assert len(chosen) == 3


@pytest.mark.proves("S002")
def test_the_changed_constraints_are_listed_with_both_numbers():
    answer = ask("chip-mesh", {}).answer
    rows = {row["constraint"]: row for row in answer.table}
    assert rows["tokens at the ridge"]["ratio"].value == pytest.approx(560 / 295, rel=0.01)
    assert rows["memory"]["ratio"].value < 0.5
    assert rows["domain"]["ratio"].value == 32
    assert rows["one pair"]["TPU v6e (Trillium)"].to("GB/s") == 100
    assert rows["fp8 over bf16"]["TPU v6e (Trillium)"].value == 1
    assert any("static" in note for note in answer.notes)


def test_a_mesh_too_small_for_the_weights_is_a_no():
    answer = ask("chip-mesh", {"mesh_x": 2, "mesh_y": 2}).answer
    assert not answer.ok
    assert answer.values["least_chips"].value == 5
    assert "{mesh_chips} do not hold the weights, {least_chips} would" in answer.says


def test_an_axis_that_does_not_divide_the_heads_is_refused():
    with pytest.raises(SpecError, match="3 does not divide 64 attention heads"):
        ask("chip-mesh", {"mesh_y": 3})
