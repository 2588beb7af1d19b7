"""Reads what a Hugging Face config.json says about a transformer; refuses what we cannot run.

Law: every switch that would change the numbers is either understood or refused. A field that is
silently skipped is a model that talks nonsense. Called by `hf_folder`; knows no torch.
"""

from collections.abc import Mapping
from typing import Any

from ridgeline.errors import ModelError
from ridgeline.serving.engine.architecture import Architecture, RopeScaling

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
ANOTHER_MODEL = f"a model of one of these families: {', '.join(FAMILIES)}"

Json = Mapping[str, Any]


def read_architecture(
    config: Json, generation: Json, *, has_head: bool, where: str
) -> Architecture:
    """The shape from config.json and generation_config.json (empty where there is none).

    `has_head` says whether the weights hold an `lm_head.weight`: without one the head is tied
    whatever the config says. `where` goes into a ModelError.
    """
    family = config.get("model_type")
    _refuse(config, where)
    heads = _count(config, "num_attention_heads", where)
    hidden = _count(config, "hidden_size", where)
    theta, scaling = _rope(config, where)
    return Architecture(
        family=str(family),
        layers=_count(config, "num_hidden_layers", where),
        hidden=hidden,
        heads=heads,
        kv_heads=_count(config, "num_key_value_heads", where, default=heads),
        head_dim=_count(config, "head_dim", where, default=_head_dim(family, hidden, heads)),
        ffn=_count(config, "intermediate_size", where),
        vocab=_count(config, "vocab_size", where),
        context=_context(config, where),
        rope_theta=theta,
        rms_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope_scaling=scaling,
        tied_head=bool(config.get("tie_word_embeddings", False)) or not has_head,
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        bos_id=_first_id(config.get("bos_token_id")),
        eos_ids=_ids(generation.get("eos_token_id", config.get("eos_token_id"))),
    )


def _refuse(config: Json, where: str) -> None:
    """Raises ModelError for a family, or an option of a family, that the model file lacks."""
    if config.get("model_type") not in FAMILIES:
        raise ModelError(
            f"model_type {config.get('model_type')!r} is not one we can run",
            where=where,
            remedy=ANOTHER_MODEL,
        )
    head = next(iter(config.get("architectures") or ()), "ForCausalLM")
    wrong = {
        f"architectures {head!r}": not str(head).endswith("ForCausalLM"),
        "quantization_config": bool(config.get("quantization_config")),
        f"hidden_act {config.get('hidden_act')!r}": config.get("hidden_act", "silu") != "silu",
        "attention_bias": bool(config.get("attention_bias")),
        "mlp_bias": bool(config.get("mlp_bias")),
        "partial_rotary_factor": config.get("partial_rotary_factor") not in (None, 1, 1.0),
    }
    for field, is_wrong in wrong.items():
        if is_wrong:
            raise ModelError(
                f"{field} is not supported",
                where=where,
                remedy="the original weights in bf16 or fp16 as safetensors, or a GGUF file",
            )


def _rope(config: Json, where: str) -> tuple[float, RopeScaling | None]:
    """Base and scaling: transformers 5 writes `rope_parameters`, 4 two separate fields."""
    fields: Json = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(fields.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    kind = fields.get("rope_type", fields.get("type", "default"))
    if kind == "default" and not any(isinstance(value, Mapping) for value in fields.values()):
        return theta, None
    if kind != "llama3":
        raise ModelError(
            f"rotary scaling {kind!r} is not supported",
            where=where,
            remedy="a model with no rotary scaling or with Llama 3's",
        )
    try:
        scaling = RopeScaling(
            factor=float(fields["factor"]),
            low_freq_factor=float(fields["low_freq_factor"]),
            high_freq_factor=float(fields["high_freq_factor"]),
            original_context=int(fields["original_max_position_embeddings"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"llama3 rotary scaling lacks a good {error}", where=where) from error
    return theta, scaling


def _context(config: Json, where: str) -> int:
    """The longest sequence in tokens; cut to the sliding window, which we do not implement.

    Qwen's configs carry a window that `use_sliding_window: false` switches off.
    """
    context = _count(config, "max_position_embeddings", where)
    window = config.get("sliding_window")
    if not window or not config.get("use_sliding_window", True):
        return context
    return min(context, int(window))


def _head_dim(family: object, hidden: int, heads: int) -> int:
    return 128 if family == "qwen3" else hidden // heads


def _count(config: Json, field: str, where: str, *, default: int | None = None) -> int:
    value = config.get(field)
    value = default if value is None else value
    if not isinstance(value, int) or value <= 0:
        raise ModelError(
            f"{field} is {value!r}, not a positive whole number",
            where=where,
            remedy="download the model's config.json again",
        )
    return value


def _ids(value: object) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(item for item in values if isinstance(item, int))


def _first_id(value: object) -> int | None:
    return next(iter(_ids(value)), None)
