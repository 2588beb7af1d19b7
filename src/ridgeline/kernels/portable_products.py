"""Matrix products of the portable decoder: exact for int8, and for floats blind to neighbours.

The law of this file: a row's result is the same bit for bit in any number of rows. Integer sums
are exact, so their order does not matter. BLAS orders fp32 sums by the shape of its operands, so
it is always given the same shape: eight rows, filled up with zeros. `portable` calls it.

Weights stay in the model's type and are widened to fp32 a panel at a time, small enough to stay in
the cache, so that memory is read once and at the narrow width.

Shapes: T rows, I inputs, O outputs.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

from ridgeline.kernels.cache_layout import quantised

_ROWS = 8
"""A lone row pays for eight; a prompt takes twice as long as in one product (both measured)."""
_PANEL = 256
"""Outputs widened at once."""
_EXACT = 1024
"""Inputs whose int8 products fp32 sums exactly, in any order: 1024 * 127 * 127 < 2 ** 24."""


Product = Callable[[torch.Tensor], torch.Tensor]
"""x @ weight.T in fp32, [T, I] to [T, O]."""


def product_of(weight_OI: torch.Tensor, dtype: str) -> Product:
    """The product with one of a layer's matrices in a model of type `dtype`."""
    if dtype == "int8":
        return Int8Product(weight_OI)
    return FloatProduct(weight_OI.to(torch.bfloat16 if dtype == "bf16" else torch.float32))


class FloatProduct:
    """The product with a bf16 or fp32 weight; products of bf16 are exact in fp32, sums are fp32."""

    def __init__(self, weight_OI: torch.Tensor) -> None:
        self._weight_OI = weight_OI

    def __call__(self, x_TI: torch.Tensor) -> torch.Tensor:
        """Return x @ weight.T, [T, O] fp32."""
        rows, outputs = len(x_TI), len(self._weight_OI)
        x_TI = functional.pad(x_TI, (0, 0, 0, -rows % _ROWS))
        result_TO = torch.empty(len(x_TI), outputs)
        for panel in _slices(outputs, _PANEL):
            weight_IO = self._weight_OI[panel].float().T
            for few in _slices(rows, _ROWS):
                torch.mm(x_TI[few], weight_IO, out=result_TO[few, panel])
        return result_TO[:rows]


class Int8Product:
    """The product with a weight quantised per output, of rows quantised one by one."""

    def __init__(self, weight_OI: torch.Tensor) -> None:
        self._weight_OI, self._scale_O = quantised(weight_OI.float())

    def __call__(self, x_TI: torch.Tensor) -> torch.Tensor:
        """Return x @ weight.T, [T, O] fp32, of integer sums that are exact."""
        numbers_TI, scale_T = quantised(x_TI)
        outputs, inputs = self._weight_OI.shape
        sums_TO = torch.zeros(len(x_TI), outputs, dtype=torch.int32)
        for panel in _slices(outputs, _PANEL):
            for part in _slices(inputs, _EXACT):
                weight_IO = self._weight_OI[panel, part].float().T
                sums_TO[:, panel] += (numbers_TI[:, part].float() @ weight_IO).int()
        return sums_TO.float() * (scale_T[:, None] * self._scale_O)


def _slices(count: int, size: int) -> list[slice]:
    """0 .. count in steps of `size`; whoever has been filled up may take the last one whole."""
    return [slice(first, first + size) for first in range(0, count, size)]
