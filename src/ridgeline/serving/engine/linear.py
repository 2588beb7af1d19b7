"""Matrix products with weights that are packed once, when they are loaded.

The law of this file: a weight is packed for oneDNN where this machine's oneDNN takes its type
(decisions/0007: 1.4 to 2.2 times `F.linear`), else multiplied by `F.linear`; which of the two is
decided once, and said in `Linear.kernel`. `model` calls it.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

_ROWS_HINT = 32  # packing may depend on the number of rows; a busy decode step has about these


def can_pack(dtype: torch.dtype) -> bool:
    """Whether oneDNN is there and multiplies matrices of this type on this machine."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


class Linear:
    """x @ weight.T + bias for [T, in] inputs; `weight` is [out, in], as Hugging Face stores it.

    `multiply` is the product itself, ready to be called in a loop.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        weight = weight.to(dtype).contiguous()
        bias = None if bias is None else bias.to(dtype).contiguous()
        self.packed = can_pack(dtype)
        self.multiply = _packed(weight, bias) if self.packed else _plain(weight, bias)

    @property
    def kernel(self) -> str:
        """What multiplies, for humans."""
        return "oneDNN, packed" if self.packed else "F.linear"


def _packed(
    weight: torch.Tensor, bias: torch.Tensor | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    product = torch.ops.mkldnn._linear_pointwise.default
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_HINT)

    def multiply(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = product(x, packed, bias, "none", [], "")
        return result

    return multiply


def _plain(
    weight: torch.Tensor, bias: torch.Tensor | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    def multiply(x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, weight, bias)

    return multiply
