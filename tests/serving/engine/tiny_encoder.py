"""A BERT of a few thousand random weights in a folder, as sentence-transformers lays one out."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "mat", "##s", "on", "a")
HIDDEN, LAYERS, INNER, POSITIONS, LONGEST = 16, 2, 32, 24, 12


def write_encoder(folder: Path, *, pooling: str = "mean_tokens", **config: Any) -> Path:
    shape = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": HIDDEN,
        "num_attention_heads": 4,
        "num_hidden_layers": LAYERS,
        "intermediate_size": INNER,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "vocab_size": len(WORDS),
        "layer_norm_eps": 1e-12,
    }
    _write(folder / "config.json", shape | config)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": LONGEST})
    (folder / "1_Pooling").mkdir()
    _write(folder / "1_Pooling" / "config.json", {f"pooling_mode_{pooling}": True})
    kinds = ("Transformer", "Pooling", "Normalize")
    _write(folder / "modules.json", [{"type": f"sentence_transformers.models.{k}"} for k in kinds])
    save_file(_weights(), str(folder / "model.safetensors"))
    _tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def _write(file: Path, value: object) -> None:
    file.write_text(json.dumps(value), encoding="utf-8")


def _weights() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = {
        "embeddings.word_embeddings.weight": (len(WORDS), HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        **_affine("embeddings.LayerNorm", HIDDEN),
    }
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= _affine(f"{name}.attention.{part}", HIDDEN, HIDDEN)
        shapes |= _affine(f"{name}.attention.output.LayerNorm", HIDDEN)
        shapes |= _affine(f"{name}.intermediate.dense", INNER, HIDDEN)
        shapes |= _affine(f"{name}.output.dense", HIDDEN, INNER)
        shapes |= _affine(f"{name}.output.LayerNorm", HIDDEN)
    return {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}


def _affine(name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def _tokenizer() -> Tokenizer:
    vocab = {word: index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, special)
    tokenizer.enable_truncation(4)  # as the real file asks; nobody may be cut in silence
    tokenizer.enable_padding(length=8)
    return tokenizer
