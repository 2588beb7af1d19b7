"""The Prometheus texts of several workers as one. Pure: texts in, a text out.

Counters and histograms are added; a gauge by the rule of its family. Samples of families that
are not the gateway's own are added too. Called for `GET /metrics` where `workers` share an address.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ridgeline.serving.gateway.metric_families import FAMILIES, PREFIX


@dataclass(slots=True)
class _Merged:
    """One family: its HELP and TYPE lines, and its samples in the order in which they came."""

    head: list[str] = field(default_factory=list)
    samples: dict[str, float] = field(default_factory=dict)


def merge(texts: Mapping[str, bytes]) -> bytes:
    """One text of all workers' (by their name). A line that is no sample is left out."""
    families: dict[str, _Merged] = {}
    for _, text in sorted(texts.items()):
        current = families.setdefault("", _Merged())
        for line in text.decode(errors="replace").splitlines():
            if line.startswith("#"):
                _, kind, name, *_ = (*line.split(" ", 3), "", "")
                current = families.setdefault(name, _Merged())
                if not any(head.startswith(f"# {kind} ") for head in current.head):
                    current.head.append(line)
            else:
                _add(current.samples, line)
    lines = []
    for family in families.values():
        lines += family.head
        lines += (f"{key} {_number(value)}" for key, value in family.samples.items())
    return ("\n".join(lines) + "\n").encode() if lines else b""


def counted(text: bytes) -> bytes:
    """Of a text the counters and histograms: what stays true when its process has ended."""
    lines, stays = [], False
    for line in text.decode(errors="replace").splitlines():
        if line.startswith("# TYPE "):
            stays = line.endswith((" counter", " histogram"))
        if stays:
            lines.append(line)
    return ("\n".join(lines) + "\n").encode() if lines else b""


def _add(samples: dict[str, float], line: str) -> None:
    key, _, written = line.rpartition(" ")
    try:
        value = float(written)
    except ValueError:
        return
    if key not in samples:
        samples[key] = value
    elif _is_the_most(key):
        samples[key] = max(samples[key], value)
    else:
        samples[key] += value


def _is_the_most(key: str) -> bool:
    family = FAMILIES.get(key.partition("{")[0].removeprefix(PREFIX))
    return family is not None and family.merged == "max"


def _number(value: float) -> str:
    """As Prometheus writes numbers."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
