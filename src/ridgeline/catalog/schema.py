"""What a catalog row may hold: the type of every field, so that a typo is refused.

`check_row` complains about one row, by file, row, field and remedy.
"""

import contextlib
import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any

from ridgeline.errors import CatalogError
from ridgeline.physics.step_time import NAMES as COEFFICIENTS

#: Says what is wrong with a value, as (path below it, problem, remedy); None where nothing is.
Complaint = tuple[str, str, str]
Check = Callable[[Any], Complaint | None]
Fields = dict[str, Check]


def number(value: Any) -> Complaint | None:
    """A finite number that is not negative, in base units."""
    if isinstance(value, str) and re.fullmatch(r"[0-9.]+[eE][0-9]+", value):
        right = f"{float(value):.6e}"
        return ("", f"{_short(value)} is text to YAML", f"{right} (with a dot and a sign)")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return (
            "",
            f"{_short(value)} is not a number",
            "a plain number in base units, such as 8.0e+12",
        )
    if not 0 <= value <= MOST:
        return ("", f"{_short(value)} is no size", f"a number of 0 to {MOST:g}")
    return None


#: More than any size, rate or count there is.
MOST = 1e24


def _short(value: object) -> str:
    """A value in words, cut where somebody wrote a novel."""
    try:
        told = repr(value)
    except ValueError:  # more digits than Python likes to write
        return "a number of thousands of digits"
    return told if len(told) <= 60 else f"{told[:57]}..."


def count(value: Any) -> Complaint | None:
    """A whole number."""
    if (problem := number(value)) is not None:
        return problem
    if value != int(value):
        return ("", f"{value} is not whole", f"{round(value)}")
    return None if value <= MOST_COUNTED else ("", f"{value:g} is no count", "a smaller number")


MOST_COUNTED = 1e15


def text(value: Any) -> Complaint | None:
    """Words; years and version numbers may be written bare."""
    if isinstance(value, str | int | float | datetime.date) and not isinstance(value, bool):
        return None
    return ("", f"{_short(value)} is not text", "words, in quotes where they hold a colon")


def flag(value: Any) -> Complaint | None:
    """Yes or no."""
    return None if isinstance(value, bool) else ("", f"{_short(value)} is neither", "true or false")


def date(value: Any) -> Complaint | None:
    """A day, as exactly as it is known."""
    if isinstance(value, datetime.date):
        return None
    if re.fullmatch(r"\d{4}(-\d\d){0,2}", told := _short(value).strip("'")):
        with contextlib.suppress(ValueError):
            datetime.date.fromisoformat(told + "0000-01-01"[len(told) :])
            return None
    return ("", f"{_short(value)} is not a date", "such as 2026-11-30")


def one_of(*words: str) -> Check:
    """One of a few words."""

    def check(value: Any) -> Complaint | None:
        return None if value in words else ("", f"{_short(value)} is not known", " or ".join(words))

    return check


def listing(of: Check) -> Check:
    """A list of such values."""

    def check(value: Any) -> Complaint | None:
        if not isinstance(value, list | tuple):
            return ("", f"{_short(value)} is not a list", "a list, such as [a, b]")
        for index, one in enumerate(value):
            if (found := of(one)) is not None:
                return (f"[{index}]" + (f".{found[0]}" if found[0] else ""), *found[1:])
        return None

    return check


def either(*checks: Check) -> Check:
    """What one of these takes; the first one's complaint where none does."""

    def check(value: Any) -> Complaint | None:
        found = [one(value) for one in checks]
        return None if None in found else found[0]

    return check


def mapping(fields: Mapping[str, Check]) -> Check:
    """Named fields, none of which may be unknown. An empty value means that it is not known."""

    def check(value: Any) -> Complaint | None:
        if not isinstance(value, Mapping):
            return ("", f"{value!r} has no fields", f"fields such as {', '.join([*fields][:3])}")
        for key, one in value.items():
            if key not in fields:
                return (str(key), "there is no such field", ", ".join(fields))
            if one is not None and (found := fields[key](one)) is not None:
                below = found[0] if found[0].startswith("[") or not found[0] else f".{found[0]}"
                return (f"{key}{below}", *found[1:])
        return None

    return check


def named(of: Check) -> Check:
    """A mapping whose keys are free."""

    def check(value: Any) -> Complaint | None:
        return mapping(dict.fromkeys(value, of) if isinstance(value, Mapping) else {"key": of})(
            value
        )

    return check


def _all(words: str, check: Check) -> Fields:
    return dict.fromkeys(words.split(), check)


_ORIGIN: Fields = {
    "id": text, "name": text, "aliases": listing(text), "notes": text,
    "source": text, "sources": listing(text), "src": either(text, named(text)), "read_on": date,
    "doubts": listing(mapping({"field": text, "low": number, "high": number, "why": text})),
}  # fmt: skip

_RATES: Fields = _all("fp64 fp32 tf32 bf16 fp16 fp8 fp6 fp4 int8", number)

_LINK: Fields = {
    "type": text, "per_direction_bytes_per_s": number, "bidirectional_bytes_per_s": number,
    "per_link_per_direction_bytes_per_s": number, "p2p_per_direction_bytes_per_s": number,
    "domain_size": count, "links": count, "topology": text,
}  # fmt: skip

_PRICE: Fields = {
    "kind": text, "usd_per_hour": either(number, listing(number)), "src": text, "as_of": date,
    "instance": text, "provider": text, "note": text,
}  # fmt: skip

_MEASURED = (
    "matmul_bf16_flops matmul_fp8_flops allreduce_busbw_2 allreduce_busbw_8 allreduce_busbw_8_ring "
    "allreduce_busbw_8_nvls p2p_bytes_per_s h2d_bytes_per_s"
)

ACCELERATOR: Fields = _ORIGIN | {
    "vendor": text, "arch": text, "introduced": text, "form_factor": text,
    "status": one_of("ga", "announced"),
    "memory": mapping({"bytes": number, "driver_reported_bytes": number, "label": text}),
    "memory_bandwidth_bytes_per_s": number,
    "flops_dense": mapping(_RATES), "unsupported_dtypes": listing(text),
    "l2_bytes": number, "llc_bytes": number, "on_chip_sram_bytes": number,
    "interconnect": mapping(_LINK), "host_link": mapping(_LINK),
    "scale_out": mapping({"bits_per_s_per_accelerator": number, "default": text}),
    "tdp_w": number, "clock_hz": number, "wave_size": count, "mig_max_instances": count,
    "compute_units": mapping({"kind": text, "count": count}), "accelerators_per_node": count,
    "measured": mapping(_all(_MEASURED, number) | {"src": text}),
    "prices_usd_per_accelerator_hour": listing(mapping(_PRICE)),
}  # fmt: skip

_ATTENTION: Fields = (
    {"kind": text, "qk_norm": one_of("per_head", "full"), "layer_mix": named(count),
     "compress_layers": named(count),
     "indexer": mapping({"heads": count, "dim": count, "top_k": count})}
    | _all("qkv_bias o_bias sinks output_gate full_rank_gate", flag)
    | _all("window q_lora_rank kv_lora_rank qk_nope_dim qk_rope_dim v_head_dim conv_kernel "
         "linear_heads linear_head_dim linear_key_heads linear_key_dim linear_value_heads "
         "linear_value_dim hyper_mult o_groups o_lora_rank", count)
)  # fmt: skip

_MOE: Fields = (
    {"placement": text}
    | _all("expert_bias router_bias shared_gate", flag)
    | _all("experts top_k shared_experts expert_intermediate shared_intermediate latent_hidden "
         "layers first_dense_layers", count)
)  # fmt: skip

_VISION = "hidden intermediate layers patch temporal_patch positions merge out deepstack"

MODEL: Fields = (
    _ORIGIN
    | {"publisher": text, "released": text, "hub": text, "native_dtype": text,
       "type": one_of("decoder", "encoder", "video-diffusion"),
       "native_dtypes": mapping(_all("experts embeddings rest", text)),
       "published": mapping({"total": count, "active": count, "rounding": count, "basis": text}),
       "norm": one_of("rms", "layer"), "attention": mapping(_ATTENTION), "moe": mapping(_MOE),
       "kv_cache": mapping(
           _all("bytes_per_token_bf16 fixed_bytes_per_sequence", number)),
       "vision": mapping(_all(_VISION, count)),
       "patch": listing(count), "vae_stride": listing(count)}
    | _all("tied_embeddings gated mlp_bias", flag)
    | _all("params_total params_active layers hidden heads kv_heads head_dim intermediate vocab "
         "context norms_per_layer extra_params max_positions text_dim freq_dim "
         "latent_channels", count)
)  # fmt: skip

NETWORK: Fields = _ORIGIN | {
    "kind": one_of("switch", "nic", "optic", "cable"), "vendor": text, "protocol": text,
    "status": one_of("ga", "announced"), "ports": count, "bits_per_s_per_port": number,
    "splits_to": listing(mapping({"ports": count, "bits_per_s_per_port": number})),
    "w": number, "max_w": number, "price_usd": number, "reach_m": number,
}  # fmt: skip

XID: Fields = _ORIGIN | {
    "code": count, "meaning": text, "class": text, "nvidia_immediate": text,
    "nvidia_investigate": text, "action": text, "rule": text,
    "severity": one_of("info", "warn", "degraded", "fatal"),
}  # fmt: skip

_FITTED = mapping(_all("value low high", number))

STEP_TIME: Fields = (
    _ORIGIN
    | _all("dtype version model accelerator engine", text)
    | {"coefficients": mapping(dict.fromkeys(COEFFICIENTS, _FITTED)),
       "points": count, "median_error": number}
)  # fmt: skip

SCHEMAS: dict[str, Fields] = {
    "accelerators": ACCELERATOR, "models": MODEL, "network": NETWORK, "xids": XID,
    "step_times": STEP_TIME,
}  # fmt: skip

#: What a row cannot do without, once a user's file lies over ours.
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "accelerators": ("name", "memory", "memory_bandwidth_bytes_per_s", "flops_dense"),
    "models": ("name", "layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "attention"),
    "network": ("name", "kind", "bits_per_s_per_port"),
    "xids": ("meaning", "action"),
    "step_times": (
        "dtype", "version", "model", "accelerator", "engine", "coefficients", "points",
        "median_error",
    ),
}  # fmt: skip


def check_row(kind: str, row: Mapping[str, Any], where: str) -> None:
    """Refuse a row with no origin, an unknown field or a value of the wrong type."""
    fields = SCHEMAS.get(kind)
    if fields is not None and (found := mapping(fields)(row)) is not None:
        path, problem, remedy = found
        raise CatalogError(problem, where=f"{where}.{path}", remedy=remedy)
    if not (row.get("source") or row.get("sources") or row.get("src")):
        remedy = "`source:` with the data sheet, paper or page that the values are from"
        raise CatalogError("has no source", where=f"{where}.source", remedy=remedy)
    if fields is not None and not row.get("read_on"):
        remedy = "`read_on:` with the day it was read, such as 2026-11-30"
        raise CatalogError("has no date", where=f"{where}.read_on", remedy=remedy)


def check_whole(kind: str, row: Mapping[str, Any], where: str) -> None:
    """Refuse a row that lacks what nothing works without."""
    for field in REQUIRED.get(kind, ()):
        if row.get(field) is None:
            needed = ", ".join(REQUIRED[kind])
            raise CatalogError("is missing", where=f"{where}.{field}", remedy=f"needs {needed}")
    if kind == "models":
        _check_model(row, where)


#: More layers than any model has.
MOST_LAYERS = 10_000


def _check_model(row: Mapping[str, Any], where: str) -> None:
    """Refuse sizes that no model can have."""
    for field in ("layers", "hidden", "heads", "kv_heads", "head_dim"):
        if row[field] <= 0:
            raise CatalogError("is 0", where=f"{where}.{field}", remedy="1 or more")
    if row["layers"] > MOST_LAYERS:
        told = f"{row['layers']:g} layers"
        raise CatalogError(told, where=f"{where}.layers", remedy=f"at most {MOST_LAYERS:,}")
    if row["heads"] % row["kv_heads"]:
        told = f"{row['kv_heads']} do not divide {row['heads']} heads"
        raise CatalogError(told, where=f"{where}.kv_heads", remedy="a divisor of heads")
