"""The decoder-only transformer: Llama, Qwen2, Qwen3 and Mistral, from named tensors to logits.

The law of this file: it knows the names in a model's files and what an architecture switches on;
`kernels` computes. It knows no request, no sampling and no block accounting; `runner` calls it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import overload

import torch

from ridgeline.errors import ModelError
from ridgeline.kernels.choose import open_decoder
from ridgeline.kernels.decoder import Batch, Decoder, Floats, LayerWeights, Shape, Weights
from ridgeline.serving.engine.architecture import Architecture, RopeScaling
from ridgeline.serving.engine.cache import Arena
from ridgeline.serving.engine.rotation import Rotation, rotated, rotated_layer

DTYPES = ("bf16", "fp32", "int8")
"""int8: weights and activations of the layers' products (W8A8); all else bf16."""

Tensors = Mapping[str, torch.Tensor]


def stored_dtype(dtype: str) -> str:
    """The type in which a model's weights are wanted from its files."""
    return "fp32" if dtype == "fp32" else "bf16"


def cache_dtype(dtype: str, asked: str = "auto") -> str:
    """The type of cached keys and values: as asked, by default what the model computes in.

    Raises ModelError for an int8 cache of an fp32 model.
    """
    if asked == "auto":
        return stored_dtype(dtype)
    if dtype == "fp32":
        raise ModelError(
            "a model that computes in fp32 keeps keys and values in fp32",
            where="kv_cache_dtype",
            remedy="kv_cache_dtype auto, or dtype bf16 or int8",
        )
    return asked


def inverse_frequencies(architecture: Architecture) -> torch.Tensor:
    """Rotary angle per position of each pair of dimensions, [H/2] fp32 (Su et al. 2021)."""
    steps = torch.arange(0, architecture.head_dim, 2, dtype=torch.int64).float()
    frequencies = 1.0 / architecture.rope_theta ** (steps / architecture.head_dim)
    scaling = architecture.rope_scaling
    return frequencies if scaling is None else _stretched(frequencies, scaling)


def _stretched(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Llama 3.1: keep fast rotations, divide slow ones by `factor`, interpolate between."""
    turns = scaling.original_context * frequencies / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return kept * frequencies + (1 - kept) * frequencies / scaling.factor


class Model:
    """A loaded model: `forward` fills the cache with a batch's keys and values, returns logits.

    `tensors` carry Hugging Face's names, and rotary halves in Hugging Face's order; `lm_head`
    may be absent (tied). They are not kept. Arenas it is used with hold `cache_dtype`. Not safe
    for two threads at once: buffers are shared. Raises ModelError for heads it cannot run.
    """

    def __init__(
        self,
        architecture: Architecture,
        tensors: Tensors,
        dtype: str,
        *,
        cache_dtype: str,
        threads: int = 1,
    ) -> None:
        self.architecture = architecture
        self.dtype = dtype
        self.cache_dtype = cache_dtype
        try:
            self.decoder: Decoder = open_decoder(
                _shape(architecture), _weights(architecture, tensors, dtype),
                dtype=dtype, cache_dtype=cache_dtype, threads=threads,
            )  # fmt: skip
        except ValueError as error:
            raise ModelError(
                f"this model cannot be run: {error}",
                where="head_dim",
                remedy="another model, or another server with `--replica URL`",
            ) from error

    @property
    def kernels(self) -> str:
        """What computes on this machine, for humans."""
        return self.decoder.name

    def forward(self, batch: Batch, arena: Arena) -> Floats:
        """Logits of the wanted rows, [W, V] fp32; overwritten by the next call."""
        return self.decoder.forward(batch, arena.cache)


def _shape(a: Architecture) -> Shape:
    return Shape(
        a.layers, a.hidden, a.heads, a.kv_heads, a.head_dim, a.ffn, a.vocab, a.rms_eps,
        inverse_frequencies(a).numpy(),
    )  # fmt: skip


def _weights(architecture: Architecture, tensors: Tensors, dtype: str) -> Weights:
    """The file's weights; for int8 an equal decoder's, whose activations are more even."""
    rotation = Rotation(architecture.hidden) if dtype == "int8" else None

    def layer(i: int) -> LayerWeights:
        filed = _layer(tensors, f"model.layers.{i}.")
        return filed if rotation is None else rotated_layer(filed, rotation)

    embedding = tensors["model.embed_tokens.weight"]
    filed = Weights(
        embedding,
        _Layers(architecture.layers, layer),
        tensors["model.norm.weight"],
        tensors.get("lm_head.weight", embedding),
    )
    return filed if rotation is None else rotated(filed, rotation)


class _Layers(Sequence[LayerWeights]):
    """Layers made when they are asked for, so that one joined copy at a time is in memory."""

    def __init__(self, count: int, make: Callable[[int], LayerWeights]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, i: int) -> LayerWeights: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[LayerWeights]: ...
    def __getitem__(self, i: int | slice) -> LayerWeights | Sequence[LayerWeights]:
        if isinstance(i, slice):
            return [self._make(j) for j in range(*i.indices(self._count))]
        if not 0 <= i < self._count:
            raise IndexError(i)
        return self._make(i)

    def __iter__(self) -> Iterator[LayerWeights]:
        return map(self._make, range(self._count))


def _layer(tensors: Tensors, prefix: str) -> LayerWeights:
    def joined(part: str, *names: str) -> torch.Tensor | None:
        found = [tensors.get(f"{prefix}{name}.{part}") for name in names]
        there = [tensor for tensor in found if tensor is not None]
        return torch.cat(there) if len(there) == len(names) else None

    def weight(*names: str) -> torch.Tensor:
        return torch.cat([tensors[f"{prefix}{name}.weight"] for name in names])

    qkv = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return LayerWeights(
        input_norm=weight("input_layernorm"),
        qkv=weight(*qkv),
        qkv_bias=joined("bias", *qkv),
        q_norm=tensors.get(f"{prefix}self_attn.q_norm.weight"),
        k_norm=tensors.get(f"{prefix}self_attn.k_norm.weight"),
        out=weight("self_attn.o_proj"),
        ffn_norm=weight("post_attention_layernorm"),
        gate_up=weight("mlp.gate_proj", "mlp.up_proj"),
        down=weight("mlp.down_proj"),
    )
