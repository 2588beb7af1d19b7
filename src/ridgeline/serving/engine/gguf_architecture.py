"""What a GGUF's metadata says about a transformer; refuses what we cannot run.

Law: as in `hf_config`, every switch that would change the numbers is understood or refused.
Called by `gguf_model`; knows no torch.
"""

import math
import struct
from collections.abc import Sequence
from typing import Any, NoReturn

from ridgeline.errors import ModelError
from ridgeline.serving.engine.architecture import Architecture, RopeScaling
from ridgeline.serving.engine.gguf_format import GgufHead

# Mistral's files say llama.
FAMILIES = ("llama", "qwen2", "qwen3")
ROPE_DIVISORS = "rope_freqs.weight"
END_FIELDS = ("eos_token_id", "eot_token_id", "eom_token_id")
F32_TYPE_ID = 0


def read_architecture(head: GgufHead) -> Architecture:
    """The shape of the model in a GGUF file; ModelError for one that cannot be run.

    `eos_ids` are the tokens that the file declares as ends: of a sequence, a turn, a message.
    """
    fields = _Fields(head)
    fields.refuse_what_is_foreign()
    heads = fields.count("attention.head_count")
    hidden = fields.count("embedding_length")
    head_dim = fields.count("attention.key_length", default=hidden // heads)
    fields.refuse_unless("attention.value_length", head_dim)
    fields.refuse_unless("rope.dimension_count", head_dim)
    context = fields.count("context_length")
    theta = fields.real("rope.freq_base", default=10_000.0)
    return Architecture(
        family=fields.family,
        layers=fields.count("block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=fields.count("attention.head_count_kv", default=heads),
        head_dim=head_dim,
        ffn=fields.count("feed_forward_length"),
        vocab=_vocab(head),
        context=min(context, fields.count("attention.sliding_window", default=context)),
        rope_theta=theta,
        rms_eps=fields.real("attention.layer_norm_rms_epsilon", default=1e-6),
        rope_scaling=_rope_scaling(head, theta, head_dim),
        tied_head="output.weight" not in head.tensors,
        qkv_bias=fields.family == "qwen2",
        qk_norm=fields.family == "qwen3",
        bos_id=head.metadata.get("tokenizer.ggml.bos_token_id"),
        eos_ids=_end_ids(head),
    )


class _Fields:
    """The metadata under the family's prefix, checked while read."""

    def __init__(self, head: GgufHead) -> None:
        self._metadata = head.metadata
        self._where = str(head.path)
        self.family: str = head.metadata.get("general.architecture", "")

    def refuse_what_is_foreign(self) -> None:
        if self.family not in FAMILIES:
            self._refuse(
                f"architecture {self.family!r} is not one we can run",
                f"a model of one of these: {', '.join(FAMILIES)} (Mistral's say llama)",
            )
        if self._metadata.get("split.count", 0) > 1:
            self._refuse(
                "the model is split into several files",
                "merge them: llama-gguf-split --merge FIRST_FILE OUT.gguf",
            )
        if self._get("expert_count", 0) > 0:
            self._refuse("mixtures of experts are not supported", "a dense model")
        scaling = self._get("rope.scaling.type", "none")
        if scaling != "none":
            self._refuse(
                f"rotary scaling {scaling!r} is not supported",
                "a model with no rotary scaling or with Llama 3's",
            )

    def count(self, name: str, *, default: int | None = None) -> int:
        value = self._get(name, default)
        if isinstance(value, list):  # one number a layer
            value = value[0] if len(set(value)) == 1 else None
        if not isinstance(value, int) or value <= 0:
            self._refuse(
                f"{self.family}.{name} is {value!r}, not one positive whole number",
                "download the file again; if it stays so, another conversion of the model",
            )
        return value

    def real(self, name: str, *, default: float) -> float:
        """Seven digits are what a 32-bit float holds: 9.99999975e-06 was written as 1e-05."""
        return float(f"{float(self._get(name, default)):.7g}")

    def refuse_unless(self, name: str, wanted: int) -> None:
        value = self.count(name, default=wanted)
        if value != wanted:
            self._refuse(f"{self.family}.{name} is {value}, a head has {wanted}", "another model")

    def _get(self, name: str, default: Any) -> Any:
        return self._metadata.get(f"{self.family}.{name}", default)

    def _refuse(self, problem: str, remedy: str) -> NoReturn:
        raise ModelError(problem, where=self._where, remedy=remedy)


def _vocab(head: GgufHead) -> int:
    """Rows of the embedding: it may be padded beyond the tokens."""
    embedding = head.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(
            "there is no token_embd.weight matrix",
            where=str(head.path),
            remedy="a whole model's GGUF file (this one may be an adapter or a vocabulary)",
        )
    return embedding.shape[0]


def _end_ids(head: GgufHead) -> tuple[int, ...]:
    found = (head.metadata.get(f"tokenizer.ggml.{field}") for field in END_FIELDS)
    return tuple(dict.fromkeys(index for index in found if isinstance(index, int)))


def _rope_scaling(head: GgufHead, theta: float, head_dim: int) -> RopeScaling | None:
    """Llama 3's scaling, told back from the divisors that a GGUF has in its place."""
    stored = head.tensors.get(ROPE_DIVISORS)
    if stored is None:
        return None
    wanted = head_dim // 2
    if stored.shape != (wanted,) or stored.type_id != F32_TYPE_ID:
        raise ModelError(f"{ROPE_DIVISORS} is not {wanted} floats", where=str(head.path))
    with head.path.open("rb") as file:
        file.seek(stored.offset_bytes)
        data = file.read(4 * wanted)
    if len(data) < 4 * wanted:
        raise ModelError(
            "the file is torn: it ends early", where=str(head.path), remedy="download it again"
        )
    divisors = struct.unpack(f"<{wanted}f", data)
    scaling = scaling_of(divisors, theta)
    if scaling is None:
        raise ModelError(
            f"{ROPE_DIVISORS} does not follow Llama 3's rule",
            where=str(head.path),
            remedy="a model with no rotary scaling or with Llama 3's",
        )
    return scaling


def scaling_of(divisors: Sequence[float], theta: float) -> RopeScaling | None:
    """The parameters that give these divisors, None where Llama 3's rule cannot.

    Between the kept and the divided frequencies the rule's share s is linear in the frequency:
    s = a / wavelength - b, with a = original / (high - low) and b = low / (high - low). Only the
    quotients matter, so low is 1. Llama 3's own values are tried first: with fewer than two
    divisors in between there is no line to be drawn.
    """
    factor = max(divisors)
    for high, original in [(4.0, 8192), *_fitted(divisors, factor, theta)]:
        scaling = RopeScaling(factor, 1.0, high, original)
        expected = llama3_divisors(scaling, theta, len(divisors))
        if all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(expected, divisors, strict=True)):
            return scaling
    return None


def llama3_divisors(scaling: RopeScaling, theta: float, count: int) -> list[float]:
    """By how much Llama 3's rule divides each of `count` rotary frequencies.

    Source: the reference implementation published with Llama 3.1.
    """
    divisors = []
    for wavelength in _wavelengths(theta, count):
        turns = scaling.original_context / wavelength
        share = (turns - scaling.low_freq_factor) / (
            scaling.high_freq_factor - scaling.low_freq_factor
        )
        share = min(max(share, 0.0), 1.0)
        divisors.append(1 / ((1 - share) / scaling.factor + share))
    return divisors


def _fitted(divisors: Sequence[float], factor: float, theta: float) -> list[tuple[float, int]]:
    """(high, original) from the first and last divisor in between, [] where there are not two."""
    between = [
        (1 / wavelength, (1 / divisor - 1 / factor) / (1 - 1 / factor))
        for wavelength, divisor in zip(_wavelengths(theta, len(divisors)), divisors, strict=True)
        if 1.0 < divisor < factor
    ]
    if len(between) < 2:
        return []
    (x0, y0), (x1, y1) = between[0], between[-1]
    slope = (y1 - y0) / (x1 - x0)
    offset = slope * x0 - y0
    if slope <= 0 or offset <= 0:
        return []
    high = 1 + 1 / offset
    return [(round(high, 3), round(slope * (high - 1)))]


def _wavelengths(theta: float, count: int) -> list[float]:
    return [2 * math.pi * theta ** (index / count) for index in range(count)]
