"""What `ridgeline simulate` prints for people: the answer first, then why; 80 columns do."""

from collections.abc import Iterable, Sequence
from typing import Any

#: What binds, in words.
CAUSES = {
    "queue": "the queue for a slot", "kv": "KV memory", "compute": "compute",
    "bandwidth": "bandwidth", "fixed": "fixed parts of steps",
    "untold": "steps of measured times", "idle": "idle",
}  # fmt: skip
_TIMES = (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "whole"))
#: So many changes of versions are told; `--json` has all.
_SHOWN = 12
#: A column of a table: its head, how wide, and what of a row.
_Cells = tuple[str, ...]


def lines(told: dict[str, Any]) -> list[str]:
    """One answer, whichever it is."""
    head = f"{told['platform']}: {told['model']} under {told['traffic']}"
    if "found" in told:
        return [head, *_found(told)]
    if "compared" in told:
        return [head, *_compared(told)]
    if "figures" in told:
        return [head, *_many(told)]
    return [head, *_one(told)]


def _one(told: dict[str, Any]) -> list[str]:
    ends = ", ".join(f"{count:,} {end}" for end, count in told["ends"].items())
    found = [f"{told['requests']:,} requests in {told['lasted_s']:,.1f} s: {ends}"]
    found += _times(told) if told["stable"] else [out_of_balance(told)]
    found.append(
        f"{told['requests_per_s']:.2f} requests/s, {told['output_tokens_per_s']:,.0f} tokens/s; "
        f"{_hits(told)}"
    )
    found += _slo(told)
    if "bound" in told:
        found.append(f"what bound the engines: {bound(told['bound']['all'])}")
    busy = [one["busy"] for one in told["replicas"]]
    shown = f"; busy {min(busy):.0%} to {max(busy):.0%}" if busy else ""
    each = told["usd_per_1k_answers"]
    per = f" (${each:.3g} per 1,000 answers)" if each and told["usd"] else ""
    cost = f"{told['replica_hours']:.2f} replica-hours, ${told['usd']:.2f}{per}"
    noun = "replica" if len(busy) == 1 else "replicas"
    found.append(f"{len(busy)} {noun}, {cost}{shown}")
    found += [
        f"  at {one['at_s']:,.0f} s {one['kind']}: {one['said']}"
        for one in told["changed"][-_SHOWN:]
    ]
    for part in ("models", "tenants", "classes"):
        if part in told:
            found += _parts(part, told[part])
    per_s = told["requests"] / told["wall_s"] if told["wall_s"] else 0.0
    found.append(
        f"{told['events']:,} events, digest {told['digest']}; {per_s:,.0f} requests/s simulated"
    )
    return found


def _times(told: dict[str, Any]) -> list[str]:
    found = [f"  {'':12}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}"]
    for name, words in _TIMES:
        cells = "".join(f"{seconds(value):>10}" for value in told[name].values())
        found.append(f"  {words:12}{cells}")
    return found


def _hits(told: dict[str, Any]) -> str:
    hits = f"{told['prefix_hit_rate']:.1%} of prompts' tokens were cached"
    if (bound := told.get("oracle")) is None:
        return hits
    return (
        f"{hits} (one cache as large as all together {bound['one_cache']:.1%}, "
        f"one without end {bound['unlimited']:.1%})"
    )


def _slo(told: dict[str, Any]) -> list[str]:
    slo = told.get("slo")
    if slo is None:
        return []
    promise = ""
    if "ttft_s" in slo:
        promise = f" (TTFT {seconds(slo['ttft_s'])}, TPOT {seconds(slo['tpot_s'])})"
    if not told["stable"]:
        return [f"SLO{promise}: not kept, since the platform does not keep up"]
    share = "-" if slo["attainment"] is None else f"{slo['attainment']:.1%}"
    wanted = f", {slo['wanted']:.1%} wanted" if "wanted" in slo else ""
    return [f"SLO{promise}: {share} of requests{wanted}; goodput {slo['goodput_per_s']:.2f}/s"]


def out_of_balance(told: dict[str, Any]) -> str:
    """Why a run has no percentiles."""
    flying, wait, growth = told["in_flight"], told["wait_s"], told["growth_per_s"]
    if told["verdict"] == "unstable":
        return (
            f"UNSTABLE: while requests come its backlog grows by {_per_s(growth)}, to "
            f"{flying['last_quarter']:.0f} in flight, and first tokens come later and later "
            f"({seconds(wait['third_quarter'])} in the third quarter of the arrivals, "
            f"{seconds(wait['last_quarter'])} in the last). Its times say how long the run was, "
            "not how good the platform is, and are not told."
        )
    if told["verdict"] == "overloaded":
        away = sum(told["ends"].get(end, 0) for end in ("refused", "unready"))
        return (
            f"OVERLOADED: {away / told['requests']:.1%} of requests were turned away from a queue "
            f"that stood {told['queue_stands']:.0%} of the second half of the arrivals. How long "
            "the others took is what patience allows and the run lasts, and is not told."
        )
    return (
        f"AT ITS LIMIT: in the second half of the arrivals a queue stood {told['queue_stands']:.0%}"
        f" of the time; the backlog changes by {_per_s(growth)}. Whether it empties again is "
        "luck, so that its times are not told. A longer run, more replicas or less traffic "
        "decide it."
    )


def _per_s(growth: dict[str, Any]) -> str:
    mean, half = growth["mean"], growth["half"] or 0.0
    low, high = mean - half, mean + half
    return f"{mean:.2g} requests/s (95 % interval {low:.2g} to {high:.2g})"


def bound(shares: dict[str, float]) -> str:
    """What bound, the largest share first."""
    ranked = sorted(shares.items(), key=lambda one: -one[1])
    told = [f"{CAUSES[cause]} {share:.0%}" for cause, share in ranked if share >= 0.005]
    return ", ".join(told) or "there were none"


def _parts(name: str, parts: dict[str, Any]) -> list[str]:
    rows = [("", "requests", "answered", "in SLO", "TTFT p50/p99", "TPOT p50/p99", "hits")]
    for one, told in parts.items():
        answered = told["ends"].get("answered", 0) / told["requests"]
        slo = told.get("slo")
        rows.append(
            (
                one or "(none)",
                f"{told['requests']:,}",
                f"{answered:.1%}",
                "-" if slo is None else f"{slo['attainment']:.1%}",
                _pair(told, "ttft_s"),
                _pair(told, "tpot_s"),
                f"{told['prefix_hit_rate']:.0%}",
            )
        )
    rows[0] = (name, *rows[0][1:])
    return table(rows)


def _pair(told: dict[str, Any], name: str) -> str:
    if told[name]["p50"] is None:
        return "-"
    return f"{seconds(told[name]['p50'])} / {seconds(told[name]['p99'])}"


def table(rows: Sequence[_Cells]) -> list[str]:
    """Columns as wide as they need; the first to the left, the others to the right."""
    wide = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [f"  {row[0]:{wide[0]}}" + "".join(_right(row[1:], wide[1:])) for row in rows]


def _right(cells: Iterable[str], wide: Iterable[int]) -> Iterable[str]:
    return (f"  {cell:>{width}}" for cell, width in zip(cells, wide, strict=True))


def _many(told: dict[str, Any]) -> list[str]:
    count = len(told["seeds"])
    found = [f"{count} runs, seeds {told['seeds'][0]} to {told['seeds'][-1]}; 95 % intervals"]
    steady = told["stable"] == count
    shown = {name: one for name, one in told["figures"].items() if steady or not _is_time(name)}
    found += [f"  {name:26}{interval(one):>24}" for name, one in shown.items()]
    if not steady:
        found.append(
            f"UNSTABLE, or at its limit, in {count - told['stable']} of {count} runs: times would "
            "say how long the runs were, and are not told"
        )
    return found


def _is_time(name: str) -> bool:
    return name.endswith("(s)")


def _compared(told: dict[str, Any]) -> list[str]:
    names, count = told["names"], len(told["seeds"])
    rows = {one["name"]: one for one in told["compared"]}
    found = table([_HEAD, *(_variant(told, rows, place) for place in range(len(names)))])
    found += [f"{one}." for one in told["verdicts"]]
    if len({tuple(one) for one in told["digests"]}) == 1:
        found.append("All runs were the same, event by event: this changes nothing here.")
    found += [f"What bound at {name}: {bound(told['bound'][name])}." for name in names]
    has_parts = any(gap["half"] is not None for one in rows.values() for gap in one["differences"])
    if count > 1:
        found.append(f"{count} runs of each, with the same requests under each seed.")
    elif has_parts:
        found.append("One run of each with the same requests; intervals by ten parts of it.")
    else:
        found.append("Of one short run nothing is known of chance: --seeds 5.")
    return found


_HEAD = ("", "in SLO", "TTFT p50/p99", "TPOT p50/p99", "replica-h", "$")


def _variant(told: dict[str, Any], rows: dict[str, Any], place: int) -> _Cells:
    def value(name: str) -> float | None:
        return rows[name]["values"][place]["mean"] if name in rows else None

    def pair(name: str) -> str:
        if told["stable"][place] < len(told["seeds"]):
            return "unstable"
        low, high = value(f"{name} p50 (s)"), value(f"{name} p99 (s)")
        return f"{seconds(low)} / {seconds(high)}"

    share = value("within the SLO (share)")
    return (
        told["names"][place],
        "-" if share is None else f"{share:.1%}",
        pair("TTFT"),
        pair("TPOT"),
        f"{value('replica-hours') or 0:.2f}",
        f"{value('cost ($)') or 0:.2f}",
    )


def _found(told: dict[str, Any]) -> list[str]:
    found = told["found"]
    if told["find"] == "rate":
        return [
            f"the SLO is kept up to {found['kept_per_s']:.3g} requests/s "
            f"({found['attainment']:.1%} of requests), "
            f"and missed at {found['missed_per_s']:.3g}/s; {found['runs']} runs"
        ]
    count = found["replicas"]
    less = found["one_less"]
    before = "" if less is None else f"; with {count - 1}, {less:.1%} did, or a backlog grew"
    noun = "replica keeps" if count == 1 else "replicas keep"
    lines_ = [
        f"{count} {noun} the SLO ({found['attainment']:.1%} of requests){before}; "
        f"{found['runs']} runs, always as many replicas, no scaling"
    ]
    if not found["is_monotone"]:
        lines_.append(f"But with {count + 1} it is missed again: there is no one limit. --seeds 5")
    return lines_


def interval(one: dict[str, Any]) -> str:
    """A mean and how far it may be off."""
    half = "" if one["half"] is None else f" ± {one['half']:.2g}"
    return f"{one['mean']:.4g}{half}"


def seconds(value: float | None) -> str:
    """A time as people read it."""
    if value is None:
        return "-"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"
