"""Writes a model folder without weights worth the name: one token a byte, for tests of the front.

Token `n` is byte `n`; the special tokens come after. Opening it takes milliseconds and no torch.
"""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ridgeline.serving.engine.tokenizer import BYTE_OF

EOS, IM_START, IM_END = 256, 257, 258
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCAB = 259
CHAT_TEMPLATE = (
    "{% if tools %}tools:{{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}"
    "{% if message['content'] == 'refuse me' %}{{ raise_exception('no such talk') }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    "{% if suffix is defined %}{{ suffix }}{% endif %}"
)


def write_byte_model(folder: Path, *, context: int = 100_000) -> Path:
    """The folder, made."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 1,
        "hidden_size": 8,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "intermediate_size": 8,
        "vocab_size": VOCAB,
        "max_position_embeddings": context,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "eos_token_id": EOS,
        "bos_token_id": None,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    said = {"chat_template": CHAT_TEMPLATE, "eos_token": SPECIALS[0]}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    save_file({"model.norm.weight": np.ones(8, np.float32)}, folder / "model.safetensors")
    return folder


def byte_tokenizer() -> Tokenizer:
    """One token a byte."""
    tokenizer = Tokenizer(models.BPE(vocab=dict(BYTE_OF), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    return tokenizer
