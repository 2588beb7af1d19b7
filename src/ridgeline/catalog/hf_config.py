"""Reads a Hugging Face config.json as it is, and makes a catalog row of it.

What the file says is taken; what it leaves out is taken from the defaults of its architecture,
which `hf_families` knows. An architecture that is not known, a field that is missing and a number
that is none are refused by name: a model counted wrongly would be worse than none.
"""

import datetime
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ridgeline.catalog.counting import count
from ridgeline.catalog.hf_dense import Config
from ridgeline.catalog.hf_families import architecture
from ridgeline.catalog.rows import unreadable
from ridgeline.errors import CatalogError

_DTYPES = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16", "float": "fp32",
    "float8_e4m3fn": "fp8",
}  # fmt: skip
_ID = re.compile(r"[a-z0-9][a-z0-9._+-]*")
_NESTED = ("text_config", "language_config", "llm_config")


def row_of(path: Path, *, named: str = "", source: str = "", read_on: str = "") -> dict[str, Any]:
    """The row of the model whose config.json this is. Raises CatalogError."""
    config = _load(path)
    inner = _language_model(config)
    row = _named(path, config, named, source, read_on)
    try:
        name, vision = _class_name(inner, config), config.get("vision_config") or {}
        fields = Config(str(path), inner, name, vision)
        row |= architecture(fields)
        quantised = config.get("quantization_config") or inner.get("quantization_config")
        row |= _native(fields, quantised)
        counted = count(row)
    except _FAILURES as error:
        told = f"holds something of another type than models have: {error}"
        raise CatalogError(told, where=str(path), remedy="the config.json as published") from error
    return row | {"params_total": counted.total, "params_active": counted.active}


#: What Python raises where a field is no number, list or mapping although it has to be.
_FAILURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def _load(path: Path) -> Mapping[str, Any]:
    try:
        loaded = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        told = unreadable(error)
        told = f"it is no JSON: {told}" if isinstance(error, json.JSONDecodeError) else told
        raise CatalogError(
            f"cannot be read: {told}", where=str(path), remedy="the config.json of a model"
        ) from error
    if not isinstance(loaded, dict):
        remedy = "the config.json of a model"
        raise CatalogError("holds no fields", where=str(path), remedy=remedy)
    return loaded


def _language_model(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part about the language model; what only the whole file says comes along."""
    for key in _NESTED:
        if isinstance(config.get(key), dict):
            outer = {name: value for name, value in config.items() if name not in _NESTED}
            return outer | config[key]
    return dict(config)


def _class_name(inner: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The name of the architecture: the outer class, else the type of the inner model."""
    listed = config.get("architectures") or inner.get("architectures") or []
    return str(listed[0]) if listed else str(inner.get("model_type", ""))


def _named(
    path: Path, config: Mapping[str, Any], named: str, source: str, read_on: str
) -> dict[str, Any]:
    address = str(config.get("_name_or_path") or "")
    hub = address if address.count("/") == 1 and not address.startswith((".", "/")) else ""
    folder = path.resolve().parent.name if path.name == "config.json" else path.stem
    name = named or hub.rpartition("/")[2] or folder
    row_id = name.lower().replace(" ", "-")
    if not _ID.fullmatch(row_id) or row_id.endswith(".json"):
        remedy = "--id with letters, digits, dots and dashes, such as my-model-7b"
        raise CatalogError(f"{name!r} is no name of a model", where="--id", remedy=remedy)
    return {
        "id": row_id,
        "name": name,
        **({"hub": hub} if hub else {}),
        "source": source or str(path),
        "read_on": read_on or datetime.date.today().isoformat(),
    }


# Types of the weights.


def _native(fields: Config, quantised: Any) -> dict[str, Any]:
    written = fields.get("torch_dtype", "") or fields.get("dtype", "") or "bfloat16"
    plain = _DTYPES.get(written.removeprefix("torch."))
    if plain is None:
        raise fields.complaint("torch_dtype", f'"{written}" is not known', ", ".join(_DTYPES))
    if not quantised:
        return {"native_dtype": plain}
    small, only_experts = _quantised(fields, quantised)
    rest = plain if only_experts else small
    types = {"experts": small, "embeddings": plain, "rest": rest}
    told = f"{small} experts, {plain} rest" if only_experts else small
    return {"native_dtype": told, "native_dtypes": types}


def _quantised(fields: Config, quantised: Mapping[str, Any]) -> tuple[str, bool]:
    """The type of quantised weights, and whether only routed experts are."""
    method = str(quantised.get("quant_method", "")).lower()
    kept = [
        str(one)
        for key in ("modules_to_not_convert", "ignore", "exclude_modules")
        for one in quantised.get(key) or ()
    ]
    only_experts = any("attn" in one for one in kept) and fields.get("num_experts_per_tok") > 0
    if method == "mxfp4":
        return "mxfp4", True
    if method == "fp8" or "fp8" in str(quantised.get("quant_algo", "")).lower():
        return "fp8", only_experts
    if "nvfp4" in str(quantised.get("quant_algo", "")).lower():
        return "nvfp4", only_experts
    bits, group = _bits(quantised)
    known = {4: "int4-g32" if group == 32 else "int4", 8: "int8"}
    if bits not in known:
        told = f'"{method or "?"}" with {bits} bits is not known'
        remedy = "fp8, mxfp4, nvfp4, or 4 or 8 bits (gptq, awq, compressed-tensors)"
        raise fields.complaint("quantization_config", told, remedy)
    return known[bits], only_experts


def _bits(quantised: Mapping[str, Any]) -> tuple[Any, Any]:
    if quantised.get("load_in_4bit") or quantised.get("load_in_8bit"):
        return (4 if quantised.get("load_in_4bit") else 8), None
    for group in (quantised.get("config_groups") or {}).values():
        weights = group.get("weights") or {}
        return weights.get("num_bits"), weights.get("group_size")
    return quantised.get("bits") or quantised.get("w_bit"), quantised.get("group_size")
