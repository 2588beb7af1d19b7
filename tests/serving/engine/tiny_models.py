"""Writes tiny random models for tests: what a real download looks like, in a few hundred kB.

Hugging Face folders are written by transformers' own classes, so transformers is the reference
for everything that reads them. GGUF files are written from the same weights by `gguf.GGUFWriter`
the way converters do it (rows of q and k permuted for the llama family, `rope_freqs.weight` for
Llama 3's scaling). Same arguments, same weights: seeded.
"""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf.quants import quantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

# Nothing may be looked for outside this machine, nor may transformers print while it saves.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

HIDDEN, LAYERS, HEADS, KV_HEADS, FFN, VOCAB, CONTEXT = 64, 2, 4, 2, 96, 300, 512
ROPE_THETA = 10_000.0
# A small base, so that some of the eight frequencies of a head fall between "low" and "high".
SCALED_ROPE_THETA = 100.0
LLAMA3_SCALING: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS_ID, EOS_ID = 1, 2
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = (
    "the cat sat on the mat and the dog sat on the log; then the rain came down again",
    "def step(self) -> None:\n    return self.total + 1  # 2024, 0.5, {'a': [1, 2]}",
    "Ünïcödé 日本語 🙂 — “quotes” and ½ measures",
)


@dataclass(frozen=True)
class Family:
    """A kind of model write_tiny can make: its transformers class and what it switches on."""

    class_name: str
    gguf_name: str
    options: dict[str, Any]

    @property
    def permuted(self) -> bool:
        """Whether a GGUF of this family keeps q and k rows interleaved."""
        return self.gguf_name == "llama"


FAMILIES = {
    "llama": Family("Llama", "llama", {"tie_word_embeddings": False}),
    "llama-tied": Family("Llama", "llama", {"tie_word_embeddings": True}),
    "llama-scaled": Family(
        "Llama",
        "llama",
        {"rope_parameters": {**LLAMA3_SCALING, "rope_theta": SCALED_ROPE_THETA}},
    ),
    "qwen2": Family("Qwen2", "qwen2", {"tie_word_embeddings": True}),
    "qwen3": Family("Qwen3", "qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "mistral": Family("Mistral", "llama", {"sliding_window": None}),
}

# Where a block has the high bytes of its 16-bit scales, for types that gguf cannot write.
SCALE_HIGH_BYTES = {
    "IQ4_NL": (1,),
    "IQ4_XS": (1,),
    "Q2_K": (81, 83),
    "Q3_K": (109,),
    "Q4_K": (1, 3),
    "Q5_K": (1, 3),
    "Q6_K": (209,),
}
GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def write_tiny(
    path: Path,
    family: str = "llama",
    *,
    layout: str = "hf",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    quantization: str = "F32",
    max_shard_size: str = "1GB",
    options: dict[str, Any] | None = None,
) -> Path:
    """Writes a model of `family` (a key of FAMILIES) and returns where it is.

    `layout` "hf" makes the folder `path` (saved in `dtype`, in shards of `max_shard_size`),
    "gguf" the file `path` (matrices in `quantization`, a GGML type's name, norms in F32).
    `options` go to the transformers configuration.
    """
    model = tiny_transformer(family, seed=seed, options=options)
    if layout == "gguf":
        write_gguf(path, model, FAMILIES[family], quantization)
        return path
    assert layout == "hf", layout
    model.to(dtype).save_pretrained(path, max_shard_size=max_shard_size)
    write_hf_tokenizer(path)
    return path


def tiny_transformer(
    family: str = "llama", *, seed: int = 0, options: dict[str, Any] | None = None
) -> Any:
    """The transformers model itself, in fp32 and eval mode: the reference for logits."""
    import transformers  # slow to import (seconds); not every user of this module needs it

    kind = FAMILIES[family]
    config = getattr(transformers, f"{kind.class_name}Config")(
        **{
            "hidden_size": HIDDEN,
            "intermediate_size": FFN,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "vocab_size": VOCAB,
            "max_position_embeddings": CONTEXT,
            "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
            "bos_token_id": BOS_ID,
            "eos_token_id": EOS_ID,
            **kind.options,
            **(options or {}),
        }
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, f"{kind.class_name}ForCausalLM")(config)
        _make_every_weight_count(model)
    return model.eval()


def _make_every_weight_count(model: Any) -> None:
    """Norms that are all ones and biases that are all zero would hide a loader that skips them."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.copy_(1.0 + 0.2 * torch.randn_like(weight))
            else:
                weight.copy_(torch.randn_like(weight) / math.sqrt(HIDDEN))


def tiny_tokenizer() -> Tokenizer:
    """A byte-level BPE of at most VOCAB tokens, trained here; digits are split one by one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def write_hf_tokenizer(path: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    tiny_tokenizer().save(str(path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIALS[BOS_ID],
        "eos_token": SPECIALS[EOS_ID],
        "clean_up_tokenization_spaces": False,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (path / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def write_gguf(path: Path, model: Any, family: Family, quantization: str = "F32") -> None:
    """Writes the transformers model as a GGUF, as a converter would."""
    writer = gguf.GGUFWriter(path, family.gguf_name)
    _add_sizes(writer, model.config)
    _add_tokenizer(writer)
    scaling = model.config.rope_parameters
    if scaling["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(scaling, model.config.head_dim))
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        _add_weight(writer, name, weight.numpy(), model.config, family, quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_sizes(writer: gguf.GGUFWriter, config: Any) -> None:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    tokenizer = tiny_tokenizer()
    spec = json.loads(tokenizer.to_str())["model"]
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    tokens += [f"[PAD{i}]" for i in range(len(tokens), VOCAB)]
    unused, control, normal = gguf.TokenType.UNUSED, gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [
            control if text in SPECIALS else unused if text.startswith("[PAD") else normal
            for text in tokens
        ]
    )
    writer.add_token_merges([" ".join(pair) for pair in spec["merges"]])
    writer.add_bos_token_id(BOS_ID)
    writer.add_eos_token_id(EOS_ID)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _add_weight(
    writer: gguf.GGUFWriter,
    name: str,
    weight: npt.NDArray[np.float32],
    config: Any,
    family: Family,
    quantization: str,
) -> None:
    if family.permuted and ".q_proj." in name:
        weight = interleaved(weight, config.num_attention_heads)
    if family.permuted and ".k_proj." in name:
        weight = interleaved(weight, config.num_key_value_heads)
    kind = gguf.GGMLQuantizationType["F32" if weight.ndim == 1 else quantization]
    # GGUFWriter takes the type of F32 and F16 from the array, of all others from `raw_dtype`.
    raw = None if kind.name in ("F32", "F16") else kind
    data = weight if raw is None else _quantized(np.ascontiguousarray(weight), kind)
    data = data.astype(np.float16) if kind.name == "F16" else data
    writer.add_tensor(gguf_tensor_name(name), np.ascontiguousarray(data), raw_dtype=raw)


def _quantized(
    weight: npt.NDArray[np.float32], kind: gguf.GGMLQuantizationType
) -> npt.NDArray[np.uint8]:
    """Blocks of `kind`; chance ones with finite scales where gguf can only read the type."""
    try:
        return quantize(weight, kind)
    except NotImplementedError:
        shape = gguf.quant_shape_to_byte_shape(weight.shape, kind)
        data = np.random.default_rng(weight.size).integers(0, 256, shape, dtype=np.uint8)
        blocks = data.reshape(-1, gguf.GGML_QUANT_SIZES[kind][1])
        blocks[:, SCALE_HIGH_BYTES.get(kind.name, ())] &= 0x3B  # positive, below one
        return data


def gguf_tensor_name(name: str) -> str:
    """What a converter calls a Hugging Face tensor."""
    whole = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in whole:
        return whole[name]
    layer, part = name.removeprefix("model.layers.").split(".", 1)
    stem, _, kind = part.rpartition(".")
    return f"blk.{layer}.{GGUF_NAMES[stem]}.{kind}"


def interleaved(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows of a head from half-split order (0..h/2, h/2..h) to pairs (0, h/2, 1, h/2+1, ...)."""
    pairs = weight.reshape(heads, 2, -1, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def llama3_divisors(scaling: dict[str, Any], head_dim: int) -> npt.NDArray[np.float32]:
    """What GGUF keeps of Llama 3's scaling: by how much each frequency is divided."""
    divisors = []
    low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
    high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * scaling["rope_theta"] ** (i / head_dim)
        if wavelength < high:
            divisors.append(1.0)
        elif wavelength > low:
            divisors.append(scaling["factor"])
        else:
            smooth = (
                scaling["original_max_position_embeddings"] / wavelength
                - scaling["low_freq_factor"]
            ) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
            divisors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(divisors, dtype=np.float32)
