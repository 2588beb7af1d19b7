"""A sentence encoder as sentence-transformers lays it out: a BERT, its pooling, its tokenizer.

Law: opening reads small files only and needs no torch. Whatever would change the numbers is
either understood or refused; a text is never cut in silence. Called by `embedding_front`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from ridgeline.errors import ModelError

_AGAIN = "download the model again"


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """A BERT's sizes. `longest` is the most tokens of one text, special tokens included."""

    layers: int
    hidden: int
    heads: int
    eps: float
    vocab: int
    positions: int
    longest: int
    pooling: str  # "mean" or "cls"
    normalizes: bool


def is_encoder(path: Path) -> bool:
    """Whether a model turns texts into vectors; any other kind generates, or is refused later."""
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("model_type") == "bert"


def read_shape(folder: Path, *, longest: int = 0) -> EncoderShape:
    """The shape from the folder's small files.

    `longest` 0 takes what the model was made for; more is possible up to its positions. Raises
    ModelError for what is missing or cannot be run.
    """
    config = _json(folder / "config.json")
    where = str(folder / "config.json")
    act, kind = config.get("hidden_act"), config.get("position_embedding_type", "absolute")
    if act != "gelu" or kind != "absolute":
        problem = f"hidden_act {act!r} with {kind!r} positions is not supported"
        raise ModelError(problem, where=where, remedy="a BERT with gelu and absolute positions")
    positions = _count(config, "max_position_embeddings", where)
    made_for = _json(folder / "sentence_bert_config.json", optional=True).get("max_seq_length")
    if longest > positions:
        raise ModelError(
            f"{longest} tokens are longer than the model's {positions} positions",
            where="--max-model-len",
            remedy=f"{positions} or less",
        )
    return EncoderShape(
        layers=_count(config, "num_hidden_layers", where),
        hidden=_count(config, "hidden_size", where),
        heads=_count(config, "num_attention_heads", where),
        eps=float(config.get("layer_norm_eps", 1e-12)),
        vocab=_count(config, "vocab_size", where),
        positions=positions,
        longest=longest or min(positions, made_for or positions),
        pooling=_pooling(folder),
        normalizes=_normalizes(folder),
    )


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer, without the cutting and padding that its file may ask for."""
    file = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises bare Exception
        problem = f"the tokenizer cannot be read: {error}"
        raise ModelError(problem, where=str(file), remedy=_AGAIN) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _pooling(folder: Path) -> str:
    """How a text's tokens become one vector; the mean where the folder does not say."""
    file = folder / "1_Pooling" / "config.json"
    modes = _json(file, optional=True) or {"pooling_mode_mean_tokens": True}
    chosen = [mode for mode, is_on in modes.items() if mode.startswith("pooling_mode") and is_on]
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if len(chosen) != 1 or chosen[0] not in known:
        problem = f"pooling by {', '.join(chosen) or 'nothing'} is not supported"
        raise ModelError(problem, where=str(file), remedy="a model with mean or cls pooling")
    return known[chosen[0]]


def _normalizes(folder: Path) -> bool:
    """Whether vectors get length one; yes where the folder does not say."""
    file = folder / "modules.json"
    if not file.is_file():
        return True
    modules = _json(file)
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    unknown = set(kinds) - {"Transformer", "Pooling", "Normalize"}
    if unknown:
        problem = f"a {unknown.pop()} layer is not supported"
        raise ModelError(problem, where=str(file), remedy="a model of transformer and pooling")
    return "Normalize" in kinds


def _json(file: Path, *, optional: bool = False) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if optional:
            return {}
        raise ModelError(
            f"there is no {file.name}", where=str(file.parent), remedy=_AGAIN
        ) from error
    except ValueError as error:
        raise ModelError(f"not JSON: {error}", where=str(file), remedy=_AGAIN) from error


def _count(config: Mapping[str, Any], field: str, where: str) -> int:
    value = config.get(field)
    if not isinstance(value, int) or value <= 0:
        problem = f"{field} is {value!r}, not a positive whole number"
        raise ModelError(problem, where=where, remedy=_AGAIN)
    return value
