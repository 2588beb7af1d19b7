"""The decoder-only transformer: Llama, Qwen2, Qwen3 and Mistral in one forward pass.

The law of this file: it computes logits of a flat batch and nothing else. It knows no request, no
sampling and no block accounting; `runner` calls it. Each layer is four packed matrix products with
fused kernels between them; the residual stream stays fp32, activations have the model's dtype.

Shapes: T rows of the batch, W wanted rows, D hidden, N query heads, H head dimensions, V words.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import torch

from ridgeline.errors import ModelError
from ridgeline.kernels import cpu
from ridgeline.serving.engine.architecture import Architecture, RopeScaling
from ridgeline.serving.engine.attention import Layout, Scratch, paged_attention, scratch_for
from ridgeline.serving.engine.cache import TOKENS, Arena, Items
from ridgeline.serving.engine.linear import Linear

# Below both, a second thread costs the kernels more than it brings: they would wait for it.
_FEW_ROWS, _FEW_PAIRS = 4, 8_000

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

Floats = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
Multiply = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's rows [T]: their tokens, positions and places in the cache (counted in tokens).

    `wanted` [W] names the rows whose logits are wanted, in the order in which they are returned.
    """

    token_ids: Int64
    positions: Int64
    slots: Int64
    layout: Layout
    wanted: Int64


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's packed products and norm weights (an empty norm is not there)."""

    input_norm: Floats
    qkv: Multiply
    q_norm: Floats
    k_norm: Floats
    out: Multiply
    ffn_norm: Floats
    gate_up: Multiply
    down: Multiply


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


class _Workspace:
    """Buffers of one step, each as a numpy array (for kernels) and a tensor (for products).

    They are made for a number of rows and narrowed to the batch once a step, not once a layer.
    """

    def __init__(self, architecture: Architecture, dtype: torch.dtype, rows: int) -> None:
        a = architecture
        item = np.uint16 if dtype == torch.bfloat16 else np.float32
        self.rows = rows
        self._dtype = dtype
        self.x_TD = np.empty((rows, a.hidden), np.float32)
        self._h_TD = np.empty((rows, a.hidden), item)
        self._q_TNH = np.empty((rows, a.heads, a.head_dim), item)
        self._a_TNH = np.empty((rows, a.heads, a.head_dim), item)
        self._m_TF = np.empty((rows, a.ffn), item)

    def narrowed(self, rows: int) -> tuple[Floats, Items, Items, Items, Items]:
        """The first `rows` rows of x, h, q, a and m."""
        buffers = (self.x_TD, self._h_TD, self._q_TNH, self._a_TNH, self._m_TF)
        x, h, q, a, m = (buffer[:rows] for buffer in buffers)
        return x, h, q, a, m

    def tensor(self, items: Items) -> torch.Tensor:
        """The same memory as a tensor of the model's dtype, [rows, everything else]."""
        return torch.from_numpy(items).view(self._dtype).view(items.shape[0], -1)


class Model:
    """A loaded model: `forward` fills the cache with a batch's keys and values, returns logits.

    `tensors` carry Hugging Face's names, and rotary halves in Hugging Face's order; `lm_head`
    may be absent (tied). They are not kept. Not safe for two threads at once: buffers are shared.
    """

    def __init__(
        self, architecture: Architecture, tensors: Mapping[str, torch.Tensor], dtype: str
    ) -> None:
        if architecture.head_dim % TOKENS:
            raise ModelError(
                f"heads of {architecture.head_dim} dimensions cannot be run; only multiples of 16",
                where="head_dim",
                remedy="another model, or another server with `--replica URL`",
            )
        self.architecture = architecture
        self.dtype = dtype
        self._torch_dtype = DTYPES[dtype]
        embedding = tensors["model.embed_tokens.weight"].to(self._torch_dtype)
        self._embedding_VD = embedding.contiguous()
        self._layers = [self._layer(tensors, i) for i in range(architecture.layers)]
        self._final_norm = _norm(tensors, "model.norm.weight")
        self._head_VD = tensors.get("lm_head.weight", embedding).to(self._torch_dtype)
        self._head = Linear(self._head_VD, None, self._torch_dtype)
        self._frequencies: Floats = inverse_frequencies(architecture).numpy()
        a = architecture
        self._scratch: Scratch = scratch_for(a.heads, a.kv_heads, a.head_dim)
        self._lines = np.empty((self._scratch.threads, a.head_dim), np.float32)
        self._workspace = _Workspace(architecture, self._torch_dtype, 64)

    @property
    def linear_kernel(self) -> str:
        """What multiplies matrices on this machine, for humans."""
        return self._head.kernel

    def _layer(self, tensors: Mapping[str, torch.Tensor], i: int) -> _Layer:
        prefix = f"model.layers.{i}."

        def linear(*names: str) -> Multiply:
            weight = torch.cat([tensors[f"{prefix}{name}.weight"] for name in names])
            biases = [tensors.get(f"{prefix}{name}.bias") for name in names]
            there = [bias for bias in biases if bias is not None]
            bias = torch.cat(there) if len(there) == len(names) else None
            return Linear(weight, bias, self._torch_dtype).multiply

        return _Layer(
            input_norm=_norm(tensors, f"{prefix}input_layernorm.weight"),
            qkv=linear("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            q_norm=_norm(tensors, f"{prefix}self_attn.q_norm.weight"),
            k_norm=_norm(tensors, f"{prefix}self_attn.k_norm.weight"),
            out=linear("self_attn.o_proj"),
            ffn_norm=_norm(tensors, f"{prefix}post_attention_layernorm.weight"),
            gate_up=linear("mlp.gate_proj", "mlp.up_proj"),
            down=linear("mlp.down_proj"),
        )

    @torch.inference_mode()
    def forward(self, batch: Batch, arena: Arena) -> torch.Tensor:
        """Logits of the wanted rows, [W, V] fp32; every row's keys and values go to the arena."""
        rows = len(batch.token_ids)
        if rows > self._workspace.rows:
            self._workspace = _Workspace(self.architecture, self._torch_dtype, 2 * rows)
        few = rows < _FEW_ROWS and batch.layout.pairs < _FEW_PAIRS
        numba.set_num_threads(1 if few else self._scratch.threads)
        x, h, *_ = self._workspace.narrowed(rows)
        ids = torch.from_numpy(batch.token_ids)
        torch.from_numpy(x).copy_(self._embedding_VD.index_select(0, ids))
        last = self._run_layers(batch, arena)
        eps, threads = self.architecture.rms_eps, numba.get_num_threads()
        cpu.add_rmsnorm(x, last.data_ptr(), self._final_norm, eps, h, threads)
        wanted = self._workspace.tensor(h).index_select(0, torch.from_numpy(batch.wanted))
        if len(wanted) == 0:
            return torch.empty(0, self.architecture.vocab)
        logits = self._head.multiply(wanted).float()
        if self._torch_dtype == torch.bfloat16:
            self._tell_leaders_apart(logits, wanted)
        return logits

    def _tell_leaders_apart(self, logits_WV: torch.Tensor, hidden_WD: torch.Tensor) -> None:
        """Make each row's largest logits fp32 ones: those that rounding could have made equal.

        A bf16 logit of 16 is known to 0.06 only, so the two likeliest tokens often tie, and which
        of them wins would be chance: the same prompt, cached or not, would go different ways.
        Whoever is largest before rounding is within one step (2^-7 of its binade) after it.
        """
        for row_V, hidden_D in zip(logits_WV.numpy(), hidden_WD, strict=True):
            largest = row_V.max()
            step = np.exp2(np.floor(np.log2(np.abs(largest) + 1e-30)) - 7)
            leaders = np.flatnonzero(row_V >= largest - step)
            exact = self._head_VD[torch.from_numpy(leaders)].float() @ hidden_D.float()
            row_V[leaders] = exact.numpy()

    def _run_layers(self, batch: Batch, arena: Arena) -> torch.Tensor:
        """All layers; what the last one would add to the residual stream is returned, not added."""
        eps, layout, slots = self.architecture.rms_eps, batch.layout, batch.slots
        scale = self.architecture.head_dim**-0.5
        x, h, q, a, m = self._workspace.narrowed(len(slots))
        h_tensor, a_tensor, m_tensor = (self._workspace.tensor(items) for items in (h, a, m))
        angles = np.multiply.outer(batch.positions.astype(np.float32), self._frequencies)
        cos, sin = np.cos(angles), np.sin(angles)
        scratch, lines, threads = self._scratch, self._lines, numba.get_num_threads()
        delta: torch.Tensor | None = None
        # Addresses, not arrays, carry a product's result to the next kernel; `delta`, `qkv` and
        # their like keep the memory alive until that kernel has returned.
        for layer, keys, values in zip(self._layers, arena.keys, arena.values, strict=True):
            before = 0 if delta is None else delta.data_ptr()
            cpu.add_rmsnorm(x, before, layer.input_norm, eps, h, threads)
            qkv = layer.qkv(h_tensor)
            cpu.rope_and_store(
                qkv.data_ptr(), slots, cos, sin, layer.q_norm, layer.k_norm, eps,
                keys, values, q, lines, threads,
            )  # fmt: skip
            paged_attention(q, keys, values, layout, scale, scratch=scratch, out_TNH=a)
            attended = layer.out(a_tensor)
            cpu.add_rmsnorm(x, attended.data_ptr(), layer.ffn_norm, eps, h, threads)
            gate_up = layer.gate_up(h_tensor)
            cpu.silu_mul(gate_up.data_ptr(), m, threads)
            delta = layer.down(m_tensor)
        assert delta is not None, "a model has at least one layer"
        return delta


def _norm(tensors: Mapping[str, torch.Tensor], name: str) -> Floats:
    """A norm's weights as fp32; empty where the model has no such norm."""
    weight = tensors.get(name)
    if weight is None:
        return np.empty(0, np.float32)
    return np.array(weight.float().numpy(), np.float32)
