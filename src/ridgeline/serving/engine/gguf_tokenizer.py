"""Builds a tokenizer from the vocabulary inside a GGUF file.

Law: how text is cut before the merges apply is named by the file (`tokenizer.ggml.pre`) and must
be known here, for a wrong cut gives other ids without any error. Called by `gguf_model`.
"""

from typing import Any, NoReturn

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from ridgeline.errors import ModelError
from ridgeline.serving.engine.gguf_format import GgufHead
from ridgeline.serving.engine.tokenizer import Tokenizer

FOLDER = "a Hugging Face folder of the model: its tokenizer.json is read as it is"
CONTROL, USER_DEFINED = 3, 4  # token types of the GGUF specification

# The expression published in Llama 3's tokenizer.json; Qwen 2's differs in single digits.
CUT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3, QWEN2, GPT2, SMOLLM = "llama-bpe", "qwen2", "gpt-2", "smollm"
ALIASES = {"llama3": LLAMA3, "llama-v3": LLAMA3}


def build_tokenizer(head: GgufHead) -> Tokenizer:
    """The tokenizer of a GGUF file; ModelError for a kind that is not known to be right."""
    metadata = head.metadata
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        _refuse(head, f"a tokenizer of kind {model!r} in a GGUF file is not supported")
    pre = metadata.get("tokenizer.ggml.pre", "")
    pre = ALIASES.get(pre, pre)
    backend = Backend(_byte_pairs(head, ignore_merges=pre == LLAMA3))
    backend.pre_tokenizer = _cutter(head, pre)
    backend.decoder = decoders.ByteLevel()
    if pre == QWEN2:
        backend.normalizer = normalizers.NFC()
    _add_whole_tokens(backend, metadata)
    return Tokenizer(
        backend,
        bos_id=metadata.get("tokenizer.ggml.bos_token_id"),
        adds_bos=metadata.get("tokenizer.ggml.add_bos_token", pre == LLAMA3),
        where=str(head.path),
    )


def _byte_pairs(head: GgufHead, *, ignore_merges: bool) -> models.BPE:
    """Llama 3 takes a word that is a token as it is, without going through the merges."""
    tokens = head.metadata.get("tokenizer.ggml.tokens") or []
    merges = [tuple(pair.split(" ")) for pair in head.metadata.get("tokenizer.ggml.merges") or []]
    if not tokens or not all(len(pair) == 2 for pair in merges):
        _refuse(head, "the file has no usable vocabulary (tokens and merges)")
    vocab = {text: index for index, text in enumerate(tokens)}
    try:
        return models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges)
    except Exception as error:  # the package raises nothing more precise
        raise ModelError(
            f"tokens and merges do not fit: {error}", where=str(head.path), remedy=FOLDER
        ) from error


def _cutter(head: GgufHead, pre: str) -> pre_tokenizers.PreTokenizer:
    """How text is cut into words before the merges."""
    if pre not in (GPT2, SMOLLM, LLAMA3, QWEN2):
        _refuse(head, f"the file's way to cut text into words ({pre!r}) is not known here")
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pre == GPT2:
        return gpt2
    if pre == SMOLLM:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    cut = Regex(CUT % ("{1,3}" if pre == LLAMA3 else ""))
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(cut, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _add_whole_tokens(backend: Backend, metadata: dict[str, Any]) -> None:
    """Control tokens and user-defined ones are never cut; the former are hidden when decoded."""
    tokens = metadata["tokenizer.ggml.tokens"]
    types = metadata.get("tokenizer.ggml.token_type") or []
    kinds = list(zip(tokens, types, strict=False))
    backend.add_special_tokens(
        [
            AddedToken(text, special=True, normalized=False)
            for text, kind in kinds
            if kind == CONTROL
        ]
    )
    backend.add_tokens(
        [AddedToken(text, normalized=False) for text, kind in kinds if kind == USER_DEFINED]
    )


def _refuse(head: GgufHead, problem: str) -> NoReturn:
    raise ModelError(problem, where=str(head.path), remedy=FOLDER)
