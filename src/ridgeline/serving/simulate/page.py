"""A page that stands alone: what a simulation says, and pictures of how it went.

No network, no other file: style and script are inside. Every word of a spec or a trace is escaped.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.page_pictures import bounds, latencies, over_time, requests

_HERE = Path(__file__).parent
_CAUSES = {
    "queue": "queue", "kv": "KV memory", "compute": "compute", "bandwidth": "bandwidth",
    "fixed": "fixed parts", "untold": "steps of measured times", "idle": "idle",
}  # fmt: skip


def page(told: Mapping[str, Any], drawn: Mapping[str, Outcome], says: Sequence[str]) -> str:
    """HTML of an answer of `ridgeline simulate`; `drawn` are runs that were looked at, by name.

    `says` are the lines that a terminal gets.
    """
    title = f"{told['platform']}: {told['model']} under {told['traffic']}"
    parts = [_warning(says), _tiles(told), _compared(told), _figures(told)]
    is_told = {name: _is_told(told, name) for name in drawn}
    parts.append(_thirds(latencies(drawn, told.get("slo"), is_told)))
    for name, outcome in drawn.items():
        if len(drawn) > 1:
            parts.append(f"<h3>{escape(name)}</h3>")
        parts += [_thirds(over_time(outcome)), *bounds(outcome), requests(outcome)]
    parts += [_parts(told, part) for part in ("models", "tenants", "classes")]
    parts += [_scaled(told), _lines(says)]
    return _whole(title, "".join(parts), told)


def _whole(title: str, body: str, told: Mapping[str, Any]) -> str:
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    digest = told.get("digest", "")
    foot = (
        f"Simulated by Ridgeline; digest {escape(str(digest))}"
        if digest
        else "Simulated by Ridgeline"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f"<header><h1>{escape(title)}</h1></header><main>{body}</main>"
        f'<footer class="quiet">{foot}</footer><script>{script}</script></body></html>\n'
    )


def _thirds(figures: Sequence[str]) -> str:
    return f'<div class="thirds">{"".join(figures)}</div>' if figures else ""


def _is_told(told: Mapping[str, Any], name: str) -> bool:
    """Whether a run's times are worth anything."""
    if "compared" in told:
        return bool(told["stable"][told["names"].index(name)] == len(told["seeds"]))
    if "figures" in told:
        return bool(told["stable"] == len(told["seeds"]))
    return bool(told["stable"])


def _warning(says: Sequence[str]) -> str:
    warned = [line for line in says if line.startswith(("UNSTABLE", "AT ITS LIMIT", "OVERLOADED"))]
    return "".join(
        f'<section class="card full bad"><p>{escape(one)}</p></section>' for one in warned
    )


def _tiles(told: Mapping[str, Any]) -> str:
    if "ends" not in told:
        return ""
    answered = told["ends"].get("answered", 0)
    tiles = [
        (
            "Requests",
            f"{told['requests']:,}",
            f"{answered / max(told['requests'], 1):.1%} answered",
        ),
        ("TTFT p99", _seconds(told["ttft_s"]["p99"]), f"p50 {_seconds(told['ttft_s']['p50'])}"),
        ("TPOT p99", _seconds(told["tpot_s"]["p99"]), f"p50 {_seconds(told['tpot_s']['p50'])}"),
        (
            "Whole answer p99",
            _seconds(told["e2e_s"]["p99"]),
            f"p50 {_seconds(told['e2e_s']['p50'])}",
        ),
        ("Output", f"{told['output_tokens_per_s']:,.0f}", "tokens a second"),
        ("Cost", f"${told['usd']:,.2f}", f"{told['replica_hours']:.2f} replica-hours"),
        ("Prefix hits", f"{told['prefix_hit_rate']:.1%}", _bound(told)),
    ]
    slo = told.get("slo")
    if slo is not None and slo["attainment"] is not None and told["stable"]:
        tiles.insert(
            1,
            ("Within the SLO", f"{slo['attainment']:.1%}", f"{slo['goodput_per_s']:.2f}/s goodput"),
        )
    return '<section class="tiles">' + "".join(_tile(*one) for one in tiles) + "</section>"


def _bound(told: Mapping[str, Any]) -> str:
    oracle = told.get("oracle")
    return "" if oracle is None else f"no cache could beat {oracle['unlimited']:.1%}"


def _tile(name: str, value: str, small: str) -> str:
    return (
        f'<div class="card tile"><h2>{escape(name)}</h2><b>{escape(value)}</b>'
        f"<small>{escape(small)}</small></div>"
    )


def _compared(told: Mapping[str, Any]) -> str:
    if "compared" not in told:
        return ""
    verdicts = "".join(f"<p>{escape(one)}.</p>" for one in told["verdicts"])
    steady = [count == len(told["seeds"]) for count in told["stable"]]
    heads = ["", *told["names"], *(f"{name}, difference" for name in told["names"][1:])]
    rows = []
    for one in told["compared"]:
        is_time = one["name"].endswith("(s)")
        cells = [
            "unstable" if is_time and not kept else _amount(value, is_time=is_time)
            for value, kept in zip(one["values"], steady, strict=True)
        ]
        gaps = [
            "-"
            if is_time and not (steady[0] and kept)
            else _amount(gap, is_time=is_time) + (" *" if apart else "")
            for gap, apart, kept in zip(one["differences"], one["apart"], steady[1:], strict=True)
        ]
        rows.append([_name(one["name"]), *cells, *gaps])
    bound = [
        [_CAUSES[cause], *(f"{told['bound'][name][cause]:.0%}" for name in told["names"])]
        for cause in _CAUSES
        if any(told["bound"][name][cause] for name in told["names"])
    ]
    return (
        f'<section class="card full verdicts"><h2>Compared</h2>{verdicts}{_table(heads, rows)}'
        '<p class="quiet">± is a 95 % interval; * differs by more than chance</p></section>'
        f'<section class="card full"><h2>What bound the engines, of their ready time</h2>'
        f"{_table(['', *told['names']], bound)}</section>"
    )


def _name(figure: str) -> str:
    """A figure's name; its times have their unit with them."""
    return figure.removesuffix(" (s)")


def _figures(told: Mapping[str, Any]) -> str:
    if "figures" not in told:
        return ""
    steady = told["stable"] == len(told["seeds"])
    rows = [
        [_name(name), _amount(one, is_time=name.endswith("(s)"))]
        for name, one in told["figures"].items()
        if steady or not name.endswith("(s)")
    ]
    head = f"{len(told['seeds'])} runs, mean ± 95 % interval"
    return f'<section class="card full"><h2>{head}</h2>{_table(["", ""], rows)}</section>'


def _parts(told: Mapping[str, Any], part: str) -> str:
    if part not in told:
        return ""
    heads = [
        part,
        "requests",
        "answered",
        "in SLO",
        "TTFT p50",
        "p99",
        "TPOT p50",
        "p99",
        "tokens/s",
        "hits",
    ]
    rows = []
    for name, one in told[part].items():
        slo = one.get("slo")
        rows.append([
            name or "(none)", f"{one['requests']:,}",
            f"{one['ends'].get('answered', 0) / max(one['requests'], 1):.1%}",
            "-" if slo is None else f"{slo['attainment']:.1%}",
            _seconds(one["ttft_s"]["p50"]), _seconds(one["ttft_s"]["p99"]),
            _seconds(one["tpot_s"]["p50"]), _seconds(one["tpot_s"]["p99"]),
            f"{one['output_tokens_per_s']:,.0f}", f"{one['prefix_hit_rate']:.0%}",
        ])  # fmt: skip
    return (
        f'<section class="card full"><h2>By {_singular(part)}</h2>{_table(heads, rows)}</section>'
    )


def _singular(part: str) -> str:
    return {"models": "model", "tenants": "tenant", "classes": "priority class"}[part]


def _scaled(told: Mapping[str, Any]) -> str:
    some = told.get("scaled") or []
    changed = [
        [f"{one['at_s']:,.0f} s", one["kind"], one["said"]] for one in told.get("changed", ())
    ]
    versions = ""
    if changed:
        versions = (
            '<section class="card full"><h2>The next version</h2>'
            f"{_table(['at', 'kind', 'what'], changed[:200], 'words')}</section>"
        )
    if not some:
        return versions
    rows = [
        [str(one["replicas"]), f"{one['at_s']:,.0f} s", one["model"], one["reason"]]
        for one in some[:200]
    ]
    more = f" (the first 200 of {len(some):,})" if len(some) > 200 else ""
    return (
        f'{versions}<section class="card full"><h2>What the autoscaler decided{more}</h2>'
        f"{_table(['replicas', 'at', 'model', 'why'], rows, 'words')}</section>"
    )


def _lines(says: Sequence[str]) -> str:
    text = escape("\n".join(says))
    head = '<section class="card full"><h2>As a terminal has it</h2>'
    return f'{head}<div class="scroll"><pre>{text}</pre></div></section>'


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]], kind: str = "numbers") -> str:
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    table = f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def _amount(one: Mapping[str, Any], *, is_time: bool) -> str:
    """An interval; of times in the unit that suits the mean."""
    if not is_time:
        return _interval(one)
    factor, unit = (1.0, "s") if abs(one["mean"]) >= 1 else (1e3, "ms")
    half = None if one["half"] is None else one["half"] * factor
    return f"{_interval({'mean': one['mean'] * factor, 'half': half})} {unit}"


def _interval(one: Mapping[str, Any]) -> str:
    half = "" if one["half"] is None else f" ± {one['half']:.2g}"
    return f"{one['mean']:.4g}{half}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "not told"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"
