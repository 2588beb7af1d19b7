"""Turns a decoder's weights so that its activations have no outliers, and int8 can hold them.

The law of this file: the decoder computes what it did, up to rounding, and costs what it did. An
int8 row has one step size, its largest number / 127, and in a trained model a few channels are
tens of times larger than all others. RMSNorm without its weight does not see a rotation of what
it norms, so the residual stream is rotated once and for all: what writes to it (embedding, out,
down) by Q, what reads it (qkv, gate and up, head) by Q as well, the norms' weights going into the
matrices behind them first. A rotated outlier is a little of every channel.

    read    W diag(norm) x  =  (W diag(norm) Q) (Q^T x)        write    Q^T (x + W y)

Source: Ashkboos et al. 2024 (QuaRot). Between up and down no rotation passes silu; there each
channel is divided by a factor that the next matrix's column is multiplied with, as in Xiao et al.
2022 (SmoothQuant), though by the weights' sizes alone: no text is read. `model` calls it for int8
(decisions/0016).

Shapes: O outputs, I inputs, D hidden, F feed-forward.
"""

import math
from dataclasses import replace
from functools import reduce

import numpy as np
import torch

from ridgeline.kernels.decoder import LayerWeights, Weights

_ROWS = 256
"""Rows turned at once: what is in between stays in the cache, and little of it is fp32."""
_ALIKE = 32
"""Products with two matrices of this width are cheaper than one with a matrix of its square."""


class Rotation:
    """An orthogonal D x D matrix Q whose numbers are all of about one size, 1 / sqrt(D).

    Q = diag(signs) (A x B x ...), a Kronecker product of Hartley matrices of the prime factors of
    D, which for 2 are Hadamard's; multiplying by it factor by factor costs D * (a + b + ...).
    """

    def __init__(self, width: int) -> None:
        signs = np.random.default_rng(width).integers(0, 2, width) * 2.0 - 1.0
        self._signs_D = torch.from_numpy(signs).float()
        self._factors = [reduce(torch.kron, map(_hartley, some)) for some in _grouped(width)]

    def reads(self, weight_OD: torch.Tensor, norm_D: torch.Tensor) -> torch.Tensor:
        """What reads rotated rows that have been normed without a weight, W diag(norm) Q."""
        return self._turned(weight_OD, self._signs_D * norm_D.float(), torch.float32)

    def writes(self, weight_DI: torch.Tensor) -> torch.Tensor:
        """What writes rotated columns, Q^T W."""
        return self._turned(weight_DI.T, self._signs_D, torch.float32).T.contiguous()

    def table(self, embedding_VD: torch.Tensor) -> torch.Tensor:
        """Embeddings on a rotated residual stream, E Q, in the type they came in."""
        return self._turned(embedding_VD, self._signs_D, embedding_VD.dtype)

    def head(self, head_VD: torch.Tensor, norm_D: torch.Tensor) -> torch.Tensor:
        """As `reads`, in the type it came in."""
        return self._turned(head_VD, self._signs_D * norm_D.float(), head_VD.dtype)

    def _turned(
        self, x_RD: torch.Tensor, scale_D: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        turned_RD = torch.empty(x_RD.shape, dtype=dtype)
        for some, into in zip(*(torch.split(x, _ROWS) for x in (x_RD, turned_RD)), strict=True):
            into.copy_(self._product(some * scale_D))
        return turned_RD

    def _product(self, x_RD: torch.Tensor) -> torch.Tensor:
        rows, width = x_RD.shape
        for factor in self._factors:  # each takes the first axis and leaves it the last one
            spread = x_RD.reshape(rows, len(factor), -1).transpose(1, 2)
            x_RD = (spread @ factor).reshape(rows, width)
        return x_RD


def rotated(weights: Weights, rotation: Rotation) -> Weights:
    """Everything but the layers, which are taken as they are (`rotated_layer`)."""
    return Weights(
        rotation.table(weights.embedding),
        weights.layers,
        torch.ones_like(weights.final_norm, dtype=torch.float32),
        rotation.head(weights.head, weights.final_norm),
    )


def rotated_layer(layer: LayerWeights, rotation: Rotation) -> LayerWeights:
    """The layer on a rotated residual stream, with the channels into `down` evened out."""
    ones_D = torch.ones_like(layer.input_norm, dtype=torch.float32)
    gate_up, down = evened(
        rotation.reads(layer.gate_up, layer.ffn_norm), rotation.writes(layer.down)
    )
    return replace(
        layer,
        input_norm=ones_D,
        qkv=rotation.reads(layer.qkv, layer.input_norm),
        out=rotation.writes(layer.out),
        ffn_norm=ones_D,
        gate_up=gate_up,
        down=down,
    )


def evened(gate_up: torch.Tensor, down_DF: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same two products with a more even row between them: up's outputs over s, down times s.

    A channel is as large as its gate and its up, on inputs without a direction of their own:
    s = sqrt(|gate| |up| / largest of down's column), so that what is uneven is shared by the row
    and the matrix. A channel that nobody writes or reads is left alone.
    """
    gate_FD, up_FD = gate_up.chunk(2)
    size_F = gate_FD.norm(dim=1) * up_FD.norm(dim=1)
    factor_F = (size_F / down_DF.abs().amax(dim=0)).sqrt()
    factor_F = torch.where(factor_F.isfinite() & (factor_F > 0), factor_F, 1.0)
    return torch.cat([gate_FD, up_FD / factor_F[:, None]]), down_DF * factor_F


def _hartley(size: int) -> torch.Tensor:
    """Fourier angles' (cos + sin) / sqrt(size): orthogonal and symmetric, for any size."""
    turns = torch.outer(torch.arange(size), torch.arange(size)) % size
    angle = turns.double() * (2 * math.pi / size)
    return ((angle.cos() + angle.sin()) / math.sqrt(size)).float()


def _grouped(width: int) -> list[list[int]]:
    """The prime factors of a width in groups whose products are alike, of `_ALIKE` or so."""
    groups: list[list[int]] = [[] for _ in range(max(1, round(math.log(width, _ALIKE))))]
    for prime in reversed(_primes(width)):
        min(groups, key=math.prod).append(prime)
    return [group for group in groups if group]


def _primes(number: int) -> list[int]:
    found = []
    divisor = 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return found
