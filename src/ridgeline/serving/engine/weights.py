"""Weights become tensors, under Hugging Face's names and in one dtype.

Law: what comes out is exactly what the model file needs: each name it expects once, in the shape
it expects, and nothing else was in the files (a bias nobody adds would be a wrong model, so it is
an error). "fp32" equals the stored or dequantised values bit for bit; "bf16" is their rounding to
nearest even. Rows of q and k come in half-split rotary order. Called by `hf_folder` and
`gguf_model`; imports torch, so the front process never imports this file.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from ridgeline.errors import ModelError
from ridgeline.serving.engine.architecture import Architecture

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
STORED = (torch.bfloat16, torch.float16, torch.float32)

# Called with (bytes done, bytes in all), counted in the dtype that was asked for.
Progress = Callable[[int, int], None]


def expected_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor a model of this architecture has."""
    a = architecture
    q_rows, kv_rows = a.heads * a.head_dim, a.kv_heads * a.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (a.hidden,),
        "self_attn.q_proj.weight": (q_rows, a.hidden),
        "self_attn.k_proj.weight": (kv_rows, a.hidden),
        "self_attn.v_proj.weight": (kv_rows, a.hidden),
        "self_attn.o_proj.weight": (a.hidden, q_rows),
        "post_attention_layernorm.weight": (a.hidden,),
        "mlp.gate_proj.weight": (a.ffn, a.hidden),
        "mlp.up_proj.weight": (a.ffn, a.hidden),
        "mlp.down_proj.weight": (a.hidden, a.ffn),
    }
    if a.qkv_bias:
        for part, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows)):
            layer[f"self_attn.{part}_proj.bias"] = (rows,)
    if a.qk_norm:
        layer["self_attn.q_norm.weight"] = layer["self_attn.k_norm.weight"] = (a.head_dim,)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (a.vocab, a.hidden)}
    for index in range(a.layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (a.hidden,)
    if not a.tied_head:
        shapes["lm_head.weight"] = (a.vocab, a.hidden)
    return shapes


def check_names(found: Iterable[str], architecture: Architecture, *, where: str) -> None:
    """Raises ModelError where a tensor is missing or nobody would use one.

    A tied model may carry its head a second time, and old Llama files their rotary frequencies:
    both say nothing new.
    """
    expected = set(expected_shapes(architecture))
    extra = {
        name
        for name in set(found) - expected
        if name != "lm_head.weight" and not name.endswith("rotary_emb.inv_freq")
    }
    for problem, names in (
        ("tensors are missing", expected - set(found)),
        ("tensors are there that the architecture does not use", extra),
    ):
        if names:
            raise ModelError(
                f"{problem}: {', '.join(sorted(names)[:3])} ({len(names)} in all)",
                where=where,
                remedy="download the model again; if it stays so, it is of another architecture",
            )


def torch_dtype(dtype: str) -> torch.dtype:
    """The torch dtype of "bf16" or "fp32"; ModelError for another word."""
    if dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is not one we can run", remedy=" or ".join(DTYPES))
    return DTYPES[dtype]


def load_safetensors(
    file_of: dict[str, Path],
    architecture: Architecture,
    dtype: str,
    *,
    progress: Progress | None = None,
    where: str,
) -> dict[str, torch.Tensor]:
    """Reads the tensors that `file_of` places in files; maps those that need no conversion.

    A mapped tensor's pages come from the file when first read, and writing to it never reaches
    the file. Raises ModelError for torn files, wrong shapes and unknown element types.
    """
    wanted = torch_dtype(dtype)
    check_names(file_of, architecture, where=where)
    total_bytes = model_bytes(architecture, wanted)
    done_bytes = 0
    tensors = {}
    for name, stored in _stored_tensors(file_of, architecture):
        tensors[name] = stored.to(wanted)
        done_bytes += stored.numel() * wanted.itemsize
        if progress:
            progress(done_bytes, total_bytes)
    return tensors


def model_bytes(architecture: Architecture, dtype: torch.dtype) -> int:
    """Bytes of all weights in `dtype`."""
    shapes = expected_shapes(architecture).values()
    return sum(torch.Size(shape).numel() for shape in shapes) * dtype.itemsize


def _stored_tensors(
    file_of: dict[str, Path], architecture: Architecture
) -> Iterator[tuple[str, torch.Tensor]]:
    """Every expected tensor as stored, file by file (each is opened once)."""
    shapes = expected_shapes(architecture)
    for file in sorted({file_of[name] for name in shapes}):
        try:
            with safe_open(file, framework="pt") as opened:
                for name in (name for name in shapes if file_of[name] == file):
                    yield name, _checked(opened.get_tensor(name), name, shapes[name], file)
        except SafetensorError as error:
            raise ModelError(
                f"torn weights: {error}", where=str(file), remedy="download the model again"
            ) from error


def _checked(tensor: torch.Tensor, name: str, shape: tuple[int, ...], file: Path) -> torch.Tensor:
    if tuple(tensor.shape) == shape and tensor.dtype in STORED:
        return tensor
    raise ModelError(
        f"{name} is {tensor.dtype} {list(tensor.shape)}, wanted float {list(shape)}",
        where=str(file),
        remedy="the original weights in bf16, fp16 or fp32, with their own config.json",
    )
