"""A systolic array against one that is stepped cycle by cycle."""

import numpy as np
import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


class Array:
    """Weight-stationary: activations move right, sums move down, one place a cycle."""

    def __init__(self, weights):
        self.weights, self.width = weights, len(weights)
        self.right = np.zeros((self.width, self.width))
        self.down = np.zeros((self.width, self.width))

    def step(self, entering):
        """One cycle; `entering` has for each row of the array what comes in at its left."""
        right = np.column_stack([entering, self.right[:, :-1]])
        above = np.vstack([np.zeros(self.width), self.down[:-1]])
        self.right, self.down = right, above + right * self.weights
        return self.down[-1]


def stepped(rows, width, seed=0):
    """Streams skewed rows through; gives the product, the cycles, and places that had work."""
    random = np.random.default_rng(seed)
    a, w = random.integers(1, 5, (rows, width)), random.integers(1, 5, (width, width))
    array, product = Array(w), np.zeros((rows, width))
    cycles = busy = done = 0
    while done < rows * width:
        entering = np.array(
            [a[cycles - k, k] if 0 <= cycles - k < rows else 0 for k in range(width)]
        )
        leaving = array.step(entering)
        busy += np.count_nonzero(array.right)
        for lane in range(width):
            row = cycles - (width - 1) - lane
            if 0 <= row < rows:
                product[row, lane] = leaving[lane]
                done += 1
        cycles += 1
    assert (product == a @ w).all()
    return cycles, busy / (cycles * width * width)


@pytest.mark.proves("S003")
def test_128_rows_on_a_128_wide_array_are_382_cycles_and_a_third_of_it_works():
    values = ask("systolic-array", {"tile_rows": "128", "array_width": "128"}).answer.values
    assert values["cycles"].value == 382
    assert values["utilization"].value == pytest.approx(0.335, abs=0.0005)
    assert (values["cycles"].value, values["utilization"].value) == pytest.approx(stepped(128, 128))


@pytest.mark.proves("S003")
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (1, 8), (3, 5), (8, 8), (40, 16), (64, 3)])
def test_cycles_and_utilization_equal_a_stepped_array(rows, width):
    given = {"tile_rows": rows, "array_width": width}
    values = ask("systolic-array", given).answer.values
    cycles, busy = stepped(rows, width)
    assert values["cycles"].value == cycles
    assert values["utilization"].value == pytest.approx(busy, rel=1e-12)
    assert values["fill_cycles"].value == values["drain_cycles"].value == width - 1


def test_tiles_that_overlap_equal_one_stream_of_all_their_rows():
    given = {"tile_rows": 32, "array_width": 16, "tiles": 4, "overlap": True}
    values = ask("systolic-array", given).answer.values
    assert values["cycles"].value == stepped(4 * 32, 16)[0]
    alone = ask("systolic-array", given | {"overlap": False}).answer.values
    assert alone["cycles"].value == 4 * stepped(32, 16)[0]


def test_short_tiles_wait_for_their_weights():
    given = {"tile_rows": 4, "array_width": 16, "tiles": 3, "overlap": True}
    assert ask("systolic-array", given).answer.values["cycles"].value == 2 * 16 + 4 + 30


def test_a_256_wide_array_idles_80_percent_on_128_rows():
    given = {"tile_rows": 128, "array_width": 256}
    idle = ask("systolic-array", given).answer.values["idle_share"].value
    assert idle == pytest.approx(0.80, abs=0.005)
