"""A GGUF's tensors become those the model file needs: dequantised, renamed, rows put in order.

Law: values are exactly those of `gguf.quants.dequantize`. llama.cpp's converter stores the q and
k rows of the llama family in pairs (0, h/2, 1, h/2+1, ...), for a rotary kernel that turns
neighbours; they are put back in half-split order here, so that the model file has one rotary rule.
Qwen's rows were never moved. Called by `gguf_model`.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from ridgeline.errors import ModelError
from ridgeline.serving.engine.architecture import Architecture
from ridgeline.serving.engine.converted_cache import ConvertedCache
from ridgeline.serving.engine.gguf_architecture import ROPE_DIVISORS
from ridgeline.serving.engine.gguf_format import GgufHead, StoredTensor
from ridgeline.serving.engine.weights import (
    Progress,
    check_names,
    expected_shapes,
    model_bytes,
    torch_dtype,
)

AGAIN = "download the file again"
T = GGMLQuantizationType
PLAIN = (T.F32, T.F16, T.BF16)
BLOCKS = (T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.IQ4_NL)
SUPERBLOCKS = (T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_XS)
READABLE = frozenset((*PLAIN, *BLOCKS, *SUPERBLOCKS))  # each of them is tested
WHOLE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def load_gguf(
    head: GgufHead,
    architecture: Architecture,
    dtype: str,
    *,
    cache_dir: Path | None,
    progress: Progress | None = None,
) -> dict[str, torch.Tensor]:
    """The model's tensors in `dtype`; with a cache, converted once and mapped ever after."""
    wanted = torch_dtype(dtype)
    stored = _by_model_name(head, architecture)
    total_bytes = model_bytes(architecture, wanted)

    def converted() -> Iterator[tuple[str, torch.Tensor]]:
        done_bytes = 0
        for name in expected_shapes(architecture):
            tensor = _converted(head, stored[name], name, architecture).to(wanted)
            done_bytes += tensor.nbytes
            yield name, tensor
            if progress:
                progress(done_bytes, total_bytes)

    if cache_dir is None:
        return dict(converted())
    return ConvertedCache(cache_dir).tensors(
        head.path, dtype, expected_shapes(architecture), converted
    )


def _by_model_name(head: GgufHead, architecture: Architecture) -> dict[str, StoredTensor]:
    """Stored tensors under the model's names, all there, all readable, all within the file."""
    where = str(head.path)
    stored = {
        _model_name(name): tensor for name, tensor in head.tensors.items() if name != ROPE_DIVISORS
    }
    check_names(stored, architecture, where=where)
    shapes = expected_shapes(architecture)
    for name, tensor in stored.items():
        if tensor.shape != shapes[name]:
            raise ModelError(
                f"{tensor.name} is {list(tensor.shape)}, wanted {list(shapes[name])}",
                where=where,
                remedy=AGAIN,
            )
        if tensor.offset_bytes + _stored_bytes(tensor, where) > head.size_bytes:
            raise ModelError(
                f"the file is torn: {tensor.name} ends beyond it", where=where, remedy=AGAIN
            )
    return stored


def _model_name(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`; others as they are."""
    stem, _, kind = name.rpartition(".")
    if stem in WHOLE:
        return f"{WHOLE[stem]}.{kind}"
    block, _, rest = stem.partition(".")
    layer, _, part = rest.partition(".")
    if block == "blk" and part in IN_LAYER:
        return f"model.layers.{layer}.{IN_LAYER[part]}.{kind}"
    return name


def _stored_bytes(tensor: StoredTensor, where: str) -> int:
    """Bytes of the tensor in the file; ModelError for a type that we do not read."""
    try:
        kind = GGMLQuantizationType(tensor.type_id)
    except ValueError:
        kind = None
    if kind not in READABLE:
        name = f"type number {tensor.type_id}" if kind is None else kind.name
        raise ModelError(
            f"{tensor.name} is stored as {name}, which is not supported",
            where=where,
            remedy=f"a file of one of these: {', '.join(sorted(k.name for k in READABLE))}",
        )
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if tensor.shape[-1] % block:
        raise ModelError(
            f"{tensor.name} has rows of {tensor.shape[-1]}, not of whole blocks of {block}",
            where=where,
            remedy=AGAIN,
        )
    return int(np.prod(tensor.shape, dtype=np.int64)) // block * block_bytes


def _converted(
    head: GgufHead, stored: StoredTensor, name: str, architecture: Architecture
) -> torch.Tensor:
    """One tensor in fp32."""
    data = np.memmap(
        head.path,
        dtype=np.uint8,
        mode="r",
        offset=stored.offset_bytes,
        shape=(_stored_bytes(stored, str(head.path)),),
    )
    kind = GGMLQuantizationType(stored.type_id)
    if kind.name in ("F32", "F16"):  # not quantised: the package takes these as numbers
        values = data.view(np.float32 if kind.name == "F32" else np.float16).astype(np.float32)
    else:
        values = dequantize(data.reshape(*stored.shape[:-1], -1), kind)
    tensor = torch.from_numpy(np.array(values, dtype=np.float32).reshape(stored.shape))
    if architecture.family == "llama" and ".q_proj." in name:
        return _half_split(tensor, architecture.heads)
    if architecture.family == "llama" and ".k_proj." in name:
        return _half_split(tensor, architecture.kv_heads)
    return tensor


def _half_split(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of each head from pairs (0, h/2, 1, h/2+1, ...) to (0, 1, ..., h/2, h/2+1, ...)."""
    pairs = weight.reshape(heads, -1, 2, weight.shape[-1])
    return pairs.swapaxes(1, 2).reshape(weight.shape)
