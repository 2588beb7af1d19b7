"""What the fields of a Hugging Face config.json mean, in models that have no experts.

A family is a function from a `Config` to the part of a row that `counting` counts and `models`
computes with. Defaults are those of its configuration class, since a config.json leaves them out.
Families with experts, and the table of all of them, are in `hf_families`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.schema import MOST_LAYERS
from ridgeline.errors import CatalogError

Part = dict[str, Any]

#: More than any dimension of a model has.
MOST = 1_000_000_000
#: Types of defaults, as a person calls them; a flag is a number to Python, so it comes first.
_KINDS: dict[type, str] = {
    bool: "true or false", int: "a whole number", list: "a list", str: "text",
}  # fmt: skip


def _cut(value: Any) -> str:
    """A value in words, cut where somebody wrote a novel."""
    told = repr(value)
    return told if len(told) <= 60 else f"{told[:57]}..."


@dataclass(frozen=True, slots=True)
class Config:
    """The fields of a language model; each has to be of the type that its reader expects."""

    where: str
    values: Mapping[str, Any]
    class_name: str
    vision: Mapping[str, Any]

    def get(self, name: str, default: Any = 0) -> Any:
        """A field, or what its family takes where it is not there or null.

        It is of the default's type: a whole number or a flag, a flag, a list, or text.
        """
        value = self.values.get(name)
        if value is None:
            return default
        kind = next(one for one in _KINDS if isinstance(default, one))
        if not isinstance(value, kind):
            raise self.complaint(name, f"{_cut(value)} is not {_KINDS[kind]}", _KINDS[kind])
        if isinstance(value, int) and not 0 <= value <= MOST:
            raise self.complaint(name, f"{_cut(value)} is no size", f"0 to {MOST:,}")
        return value

    def need(self, *names: str) -> int:
        """The first of these that is there, as a whole number above 0."""
        name = next((one for one in names if self.values.get(one) is not None), names[0])
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            told = f"{_cut(value)} is no number of anything"
            raise self.complaint(name, told, "a whole number")
        if value > (most := MOST_LAYERS if name in _LAYERS else MOST):
            raise self.complaint(name, f"{_cut(value)} is too many", f"at most {most:,}")
        return value

    def check(self, *needed: tuple[str, ...]) -> None:
        """CatalogError that names every field that is missing."""
        missing = [
            " or ".join(names)
            for names in needed
            if all(self.values.get(name) is None for name in names)
        ]
        if missing:
            told = f"{self.class_name or 'a model'} needs {', '.join(missing)}"
            raise CatalogError(told, where=self.where, remedy="the config.json as published")

    def complaint(self, name: str, problem: str, remedy: str) -> CatalogError:
        """An error about one field."""
        return CatalogError(problem, where=f"{self.where}, {name}", remedy=remedy)


_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "n_head")
_CONTEXT = ("max_position_embeddings", "n_positions")
NEEDED = (_LAYERS, _HIDDEN, _HEADS, ("vocab_size",))


def plain(config: Config, *, tied: bool = False, head_dim: int = 0) -> Part:
    """What every family has: sizes, heads, vocabulary."""
    hidden, heads = config.need(*_HIDDEN), config.need(*_HEADS)
    width = config.get("head_dim") or head_dim
    if not width and hidden % heads:
        told = f"{heads} heads do not divide {hidden}, and there is no head_dim"
        raise config.complaint("head_dim", told, "head_dim as published")
    kv_heads = config.need("num_key_value_heads") if _has_kv(config) else heads
    if heads % kv_heads:
        told = f"{kv_heads} do not divide {heads} heads"
        raise config.complaint("num_key_value_heads", told, "a divisor of num_attention_heads")
    layers = config.need(*_LAYERS)
    _check_types(config, layers)
    context = next((config.values[name] for name in _CONTEXT if config.get(name)), None)
    return {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": width or hidden // heads,
        "intermediate": config.get("intermediate_size"),
        "vocab": config.need("vocab_size"),
        **({"context": context} if context else {}),
        "tied_embeddings": bool(config.get("tie_word_embeddings", tied)),
    }


def _check_types(config: Config, layers: int) -> None:
    """CatalogError for kinds of layers that are not known, or too few of them."""
    listed = config.get("layer_types", [])
    for one in listed:
        if not isinstance(one, str) or one not in (*_TYPES, _FULL):
            told = f"{_cut(one)} is no kind of layer that is known"
            raise config.complaint("layer_types", told, ", ".join((_FULL, *_TYPES)))
    if listed and len(listed) < layers:
        told = f"has {len(listed)} for {layers} layers"
        raise config.complaint("layer_types", told, "one for each layer")


def _has_kv(config: Config) -> bool:
    return config.values.get("num_key_value_heads") is not None


def _kind(row: Part) -> str:
    return {row["heads"]: "mha", 1: "mqa"}.get(row["kv_heads"], "gqa")


def attention_part(row: Part, **known: Any) -> Part:
    """The attention part: only what holds is written."""
    return {"kind": _kind(row), **{name: value for name, value in known.items() if value}}


_FULL = "full_attention"
_TYPES = {
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "gated_deltanet",
}


def mixed(config: Config, row: Part, attention: Part, *, capped: str, every: int) -> Part:
    """The mix of layers: as listed, else one full layer in every `every`; 0 is none."""
    full, layers = _kind(row), row["layers"]
    listed = config.get("layer_types", [])[:layers]
    kinds = [_TYPES.get(one, full) for one in listed] or [
        full if every and (index + 1) % every == 0 else capped for index in range(layers)
    ]
    mix = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    if len(mix) == 1:
        return attention | {"kind": kinds[0]}
    return attention | {"layer_mix": mix}


# Dense families.


def llama(config: Config) -> Part:
    """Llama, Mistral, Phi 3, Granite: gated, two norms a layer, perhaps a sliding window."""
    config.check(("intermediate_size",))
    row = plain(config)
    biased = bool(config.get("attention_bias"))
    attention = attention_part(row, qkv_bias=biased, o_bias=biased)
    window = config.get("sliding_window")
    if window and config.get("use_sliding_window", True):
        attention |= {"window": window}
        attention = mixed(config, row, attention, capped="sliding", every=0)
    return row | {"attention": attention, **held("mlp_bias", config.get("mlp_bias"))}


def held(name: str, value: Any) -> Part:
    """A field of our row, only where it holds."""
    return {name: value} if value else {}


def qwen2(config: Config) -> Part:
    """Qwen2: biases of q, k and v; the later layers may slide."""
    config.check(("intermediate_size",))
    row = plain(config)
    attention = attention_part(row, qkv_bias=True)
    if config.get("use_sliding_window") and config.get("sliding_window"):
        first = min(config.get("max_window_layers", 28), row["layers"])
        mix = {_kind(row): first, "sliding": row["layers"] - first}
        attention |= {"window": config.get("sliding_window"), "layer_mix": mix}
    return row | {"attention": attention}


def qwen3(config: Config) -> Part:
    """Qwen3: norms of queries and keys; its head_dim is not hidden / heads."""
    config.check(("intermediate_size",))
    row = plain(config, head_dim=0 if "moe" in config.class_name.lower() else 128)
    biased = bool(config.get("attention_bias"))
    attention = attention_part(row, qk_norm="per_head", qkv_bias=biased, o_bias=biased)
    return row | {"attention": attention}


def olmo2(config: Config) -> Part:
    """OLMo 2: norms of queries and keys over all heads."""
    row = llama(config)
    return row | {"attention": row["attention"] | {"qk_norm": "full"}}


def glm(config: Config) -> Part:
    """GLM-4: the 0414 models have four norms a layer."""
    row = plain(config, head_dim=128)
    biased = bool(config.get("attention_bias", config.class_name.startswith("GlmFor")))
    norms = 4 if "Glm4" in config.class_name or "glm4" in config.class_name else 2
    attention = attention_part(row, qkv_bias=biased)
    return row | {"attention": attention, "norms_per_layer": norms}


def gemma(config: Config) -> Part:
    """Gemma: tied embeddings."""
    config.check(("intermediate_size",))
    return (row := plain(config, tied=True, head_dim=256)) | {"attention": attention_part(row)}


def gemma2(config: Config) -> Part:
    """Gemma 2: every second layer slides, four norms a layer."""
    row = gemma(config)
    attention = row["attention"] | {"window": config.get("sliding_window", 4096)}
    attention = mixed(config, row, attention, capped="sliding", every=2)
    return row | {"attention": attention, "norms_per_layer": 4}


def gemma3(config: Config) -> Part:
    """Gemma 3: five of six layers slide; the vision tower comes along."""
    row = gemma(config)
    attention = row["attention"] | {
        "window": config.get("sliding_window", 4096),
        "qk_norm": "per_head",
    }
    every = config.get("sliding_window_pattern", 6)
    attention = mixed(config, row, attention, capped="sliding", every=every)
    tower = _siglip(config.vision, row["hidden"])
    return row | {"attention": attention, "norms_per_layer": 4, **held("extra_params", tower)}


def _siglip(vision: Mapping[str, Any], out: int) -> int:
    """Parameters of Gemma 3's vision tower and its projector; 0 where there is none."""
    if not vision.get("num_hidden_layers"):
        return 0
    hidden, wide = vision["hidden_size"], vision["intermediate_size"]
    patch, side = vision.get("patch_size", 14), vision.get("image_size", 896)
    block = 4 * (hidden * hidden + hidden) + 2 * hidden * wide + wide + hidden + 4 * hidden
    tables = 3 * patch * patch * hidden + hidden + (side // patch) ** 2 * hidden
    tower = tables + vision["num_hidden_layers"] * block + 2 * hidden
    return int(tower + hidden * out + hidden)


def phi(config: Config) -> Part:
    """Phi 1 and 2: biases everywhere, one norm a layer, a plain feed-forward block."""
    row = plain(config)
    attention = attention_part(row, qkv_bias=True, o_bias=True)
    shape = {"gated": False, "mlp_bias": True, "norm": "layer", "norms_per_layer": 1}
    return row | {"attention": attention, **shape, "extra_params": row["vocab"]}


def gpt2(config: Config) -> Part:
    """GPT-2: a table of positions, biases everywhere."""
    row = plain(config, tied=True)
    row["intermediate"] = config.get("n_inner") or 4 * row["hidden"]
    attention = attention_part(row, qkv_bias=True, o_bias=True)
    positions = config.need(*_CONTEXT) * row["hidden"]
    shape = {"gated": False, "mlp_bias": True, "norm": "layer", "extra_params": positions}
    return row | {"attention": attention, **shape}
