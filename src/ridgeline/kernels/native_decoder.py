"""The decoder in C++, as Python sees it: `native/abi.h`, field by field.

The law of this file: it packs weights, holds every array that the library points at, and makes one
call a step; the call releases Python's lock. `choose` picks it. Shapes are drawn in `decoder`.
"""

import ctypes
import weakref
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from ridgeline.kernels.decoder import (
    Batch,
    Cache,
    Floats,
    Items,
    LayerWeights,
    Shape,
    Weights,
)
from ridgeline.kernels.library import library

KINDS = {"fp32": 0, "bf16": 1, "int8": 2}
STAGES = (
    "embed", "norm", "qkv", "rope", "attention", "quantise", "out", "gate_up", "down", "head",
)  # fmt: skip
CACHES = {"fp32": ("fp32",), "bf16": ("bf16", "int8"), "int8": ("bf16", "int8")}
"""Types of cache that a model of a type may have."""
MOST_HEAD_DIM = 512
_ALIGNMENT = 64
_PANEL = 32
_NOT_IN_IT = -2  # of rl_step

_Pointer = ctypes.c_void_p
_Count = ctypes.c_int64


class _Linear(ctypes.Structure):
    _fields_ = (
        ("tiles", _Pointer), ("scales", _Pointer), ("sums", _Pointer), ("bias", _Pointer),
        ("out", _Count), ("in_", _Count), ("kind", ctypes.c_int32),
    )  # fmt: skip


class _Layer(ctypes.Structure):
    _fields_ = (
        ("qkv", _Linear), ("attended", _Linear), ("gate_up", _Linear), ("down", _Linear),
        ("input_norm", _Pointer), ("q_norm", _Pointer), ("k_norm", _Pointer),
        ("ffn_norm", _Pointer), ("keys", _Pointer), ("values", _Pointer),
        ("key_scales", _Pointer), ("value_scales", _Pointer),
    )  # fmt: skip


class _Model(ctypes.Structure):
    _fields_ = (
        ("layers", _Count), ("hidden", _Count), ("heads", _Count), ("kv_heads", _Count),
        ("head_dim", _Count), ("ffn", _Count), ("vocab", _Count), ("eps", ctypes.c_float),
        ("activation", ctypes.c_int32), ("cache", ctypes.c_int32), ("threads", ctypes.c_int32),
        ("blocks_per", _Count), ("frequencies", _Pointer), ("embedding", _Pointer),
        ("final_norm", _Pointer), ("head", _Linear), ("layer", ctypes.POINTER(_Layer)),
    )  # fmt: skip


class _Batch(ctypes.Structure):
    _fields_ = (
        ("rows", _Count), ("sequences", _Count), ("wanted_rows", _Count), ("table_width", _Count),
        ("token_ids", _Pointer), ("starts", _Pointer), ("lens", _Pointer),
        ("contexts", _Pointer), ("tables", _Pointer), ("wanted", _Pointer),
    )  # fmt: skip


def _library() -> ctypes.CDLL:
    loaded = library()
    assert loaded is not None, "opened only where there is a library"
    loaded.rl_packed_bytes.restype = _Count
    loaded.rl_packed_bytes.argtypes = [_Count, _Count, ctypes.c_int32]
    loaded.rl_pack.argtypes = [
        _Pointer, _Count, _Count, ctypes.c_int32, _Pointer, _Pointer, _Pointer,
    ]  # fmt: skip
    loaded.rl_open.restype = _Pointer
    loaded.rl_open.argtypes = [ctypes.POINTER(_Model), ctypes.c_char_p]
    loaded.rl_close.argtypes = [_Pointer]
    loaded.rl_step.argtypes = [_Pointer, ctypes.POINTER(_Batch), _Pointer]
    loaded.rl_seconds.restype = ctypes.POINTER(ctypes.c_double)
    loaded.rl_seconds.argtypes = [_Pointer]
    return loaded


class _Packer:
    """Packs matrices one after the other into one piece of memory, large pages where there are.

    They have the sizes, in the order, that were told: the library knows no other.
    """

    def __init__(self, lib: ctypes.CDLL, sizes: Sequence[tuple[int, int, int]]) -> None:
        self._lib = lib
        self._sizes = iter(sizes)
        total = sum(lib.rl_packed_bytes(*size) for size in sizes)
        self._memory = np.empty(total + _ALIGNMENT, np.uint8)
        self._at = -self._memory.ctypes.data % _ALIGNMENT
        self.kept: list[Items] = [self._memory]

    def address(self, items: Items) -> int:
        """The items' address; they are kept from now on."""
        self.kept.append(items)
        return items.ctypes.data

    def vector(self, tensor: torch.Tensor | None, length: int, multiple: int = 1) -> int | None:
        """The address of a vector as fp32, padded with zeros to a multiple; None for none."""
        if tensor is None:
            return None
        padded = np.zeros(-(-length // multiple) * multiple, np.float32)
        padded[:length] = _of_size(tensor, length).float().numpy()
        return self.address(padded)

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> _Linear:
        """Packs the next weight, [out, in]."""
        out, width, kind = next(self._sizes)
        rows = np.ascontiguousarray(_of_size(weight, out, width).float().numpy())
        quantised = kind == KINDS["int8"]
        outputs = -(-out // _PANEL) * _PANEL if quantised else 0
        scales, sums = np.zeros(outputs, np.float32), np.zeros(outputs, np.int32)
        tiles = self._memory.ctypes.data + self._at
        self._at += self._lib.rl_packed_bytes(out, width, kind)
        self._lib.rl_pack(
            rows.ctypes.data, out, width, kind, tiles, scales.ctypes.data, sums.ctypes.data
        )
        return _Linear(
            tiles, self.address(scales), self.address(sums), self.vector(bias, out),
            out, width, kind,
        )  # fmt: skip


def _interleaved(gate_up: torch.Tensor) -> torch.Tensor:
    """Sixteen outputs of gate, then the sixteen of up that meet them, and so on."""
    ffn, hidden = gate_up.shape[0] // 2, gate_up.shape[1]
    whole = -(-ffn // 16) * 16
    padded = torch.zeros(2, whole, hidden, dtype=gate_up.dtype)
    padded[0, :ffn], padded[1, :ffn] = gate_up[:ffn], gate_up[ffn:]
    return padded.view(2, whole // 16, 16, hidden).transpose(0, 1).reshape(2 * whole, hidden)


def _sizes(shape: Shape, kind: int, head_kind: int) -> Iterable[tuple[int, int, int]]:
    """Outputs, inputs and kind of every matrix, as they are packed."""
    across, ffn = shape.heads * shape.head_dim, -(-shape.ffn // 16) * 16
    for _ in range(shape.layers):
        yield across + 2 * shape.kv_heads * shape.head_dim, shape.hidden, kind
        yield shape.hidden, across, kind
        yield 2 * ffn, shape.hidden, kind
        yield shape.hidden, shape.ffn, kind
    yield shape.vocab, shape.hidden, head_kind


class NativeDecoder:
    """A decoder at one level of the library, with `threads` threads of its own.

    `dtype`: "fp32", "bf16" or "int8" (W8A8); `cache_dtype`: "fp32", "bf16" or "int8". Raises
    ValueError for head dimensions that are no multiple of 16 or above 512, for weights of another
    shape, and for a cache that models of this type have not; MemoryError where memory is short.
    """

    def __init__(
        self, shape: Shape, weights: Weights, *, dtype: str, cache_dtype: str, level: str,
        threads: int,
    ) -> None:  # fmt: skip
        if shape.head_dim % 16 or shape.head_dim > MOST_HEAD_DIM:
            raise ValueError(
                f"heads of {shape.head_dim} dimensions; only multiples of 16 up to {MOST_HEAD_DIM}"
            )
        if cache_dtype not in CACHES[dtype]:
            raise ValueError(f"{dtype} with a cache of {cache_dtype}; only {CACHES[dtype]}")
        lib = _library()
        kind = KINDS[dtype]
        narrow = KINDS["fp32"] if dtype == "fp32" else KINDS["bf16"]
        packer = _Packer(lib, list(_sizes(shape, kind, narrow)))
        self._layers = (_Layer * shape.layers)(
            *(_packed_layer(packer, layer, shape) for layer in weights.layers)
        )
        self._model = _Model(
            shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.ffn,
            shape.vocab, shape.rms_eps, narrow, KINDS[cache_dtype], threads, 1,
            packer.address(np.ascontiguousarray(shape.frequencies, np.float32)),
            packer.address(
                _as_stored(_of_size(weights.embedding, shape.vocab, shape.hidden), narrow)
            ),
            packer.vector(weights.final_norm, shape.hidden, 64),
            packer.linear(weights.head), self._layers,
        )  # fmt: skip
        self._kept = packer.kept
        self._lib = lib
        self._level = level
        self._vocab = shape.vocab
        self._cache: Cache | None = None
        self._logits = np.empty((0, shape.vocab), np.float32)
        self._handle = 0
        self._close: weakref.finalize[..., NativeDecoder] | None = None

    @property
    def name(self) -> str:
        """What computes on this machine, for humans."""
        return f"C++, {self._level}"

    def forward(self, batch: Batch, cache: Cache) -> Floats:
        """Logits of the wanted rows, [W, V]; every row's keys and values go to the cache.

        The array is overwritten by the next call. Raises MemoryError, and ValueError for a batch
        that contradicts itself; which blocks a cache has is not checked.
        """
        if cache is not self._cache:
            self._use(cache)
        wanted = len(batch.wanted)
        if wanted > len(self._logits):
            self._logits = np.empty((max(wanted, 2 * len(self._logits)), self._vocab), np.float32)
        what = _Batch(
            len(batch.token_ids), len(batch.lens), wanted, batch.tables.shape[1],
            *(_address(items) for items in (
                batch.token_ids, batch.starts, batch.lens, batch.contexts, batch.tables,
                batch.wanted,
            )),
        )  # fmt: skip
        failed = self._lib.rl_step(self._handle, ctypes.byref(what), self._logits.ctypes.data)
        if failed == _NOT_IN_IT:
            raise ValueError("the batch names rows, positions or words that it has not")
        if failed:
            raise MemoryError(f"no memory for a step of {len(batch.token_ids)} rows")
        return self._logits[:wanted]

    def profile(self) -> dict[str, float]:
        """Seconds that each stage took since the last call, by its name."""
        seconds = self._lib.rl_seconds(self._handle)
        taken = dict(zip(STAGES, seconds[: len(STAGES)], strict=True))
        for stage in range(len(STAGES)):
            seconds[stage] = 0.0
        return taken

    def _use(self, cache: Cache) -> None:
        """Point the layers at a cache, and open the decoder anew."""
        for i, layer in enumerate(self._layers):
            layer.keys, layer.values = cache.keys[i].ctypes.data, cache.values[i].ctypes.data
            if cache.key_scales is not None and cache.value_scales is not None:
                layer.key_scales = cache.key_scales[i].ctypes.data
                layer.value_scales = cache.value_scales[i].ctypes.data
        self._model.blocks_per = cache.blocks_per
        self._cache = None  # until there is a decoder that points at it
        if self._close is not None:
            self._close()
        self._handle = self._lib.rl_open(ctypes.byref(self._model), self._level.encode())
        if not self._handle:
            raise MemoryError("no memory for the decoder's threads and buffers")
        self._close = weakref.finalize(self, self._lib.rl_close, self._handle)
        self._close.atexit = False  # another thread may be in a step, and the process ends anyway
        self._cache = cache


def _packed_layer(packer: _Packer, layer: LayerWeights, shape: Shape) -> _Layer:
    return _Layer(
        packer.linear(layer.qkv, layer.qkv_bias),
        packer.linear(layer.out),
        packer.linear(_interleaved(layer.gate_up)),
        packer.linear(layer.down),
        packer.vector(layer.input_norm, shape.hidden, 64),
        packer.vector(layer.q_norm, shape.head_dim),
        packer.vector(layer.k_norm, shape.head_dim),
        packer.vector(layer.ffn_norm, shape.hidden, 64),
    )


def _of_size(tensor: torch.Tensor, *size: int) -> torch.Tensor:
    if tensor.shape != size:
        raise ValueError(f"weights of {tuple(tensor.shape)} where the model's shape wants {size}")
    return tensor


def _as_stored(tensor: torch.Tensor, kind: int) -> Items:
    """A contiguous matrix as fp32, or as bf16 bits."""
    if kind == KINDS["bf16"]:
        bits: Items = tensor.to(torch.bfloat16).contiguous().view(torch.int16).numpy()
        return bits.view(np.uint16)
    return np.ascontiguousarray(tensor.float().numpy())


def _address(items: Items) -> int:
    assert items.flags.c_contiguous, "the library reads rows one after the other"
    assert items.flags.aligned, "the library reads whole numbers"
    assert items.dtype == np.int32, f"{items.dtype} is not int32"
    return items.ctypes.data
