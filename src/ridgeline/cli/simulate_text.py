"""What `ridgeline simulate` prints for people."""

from typing import Any


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
    per_s = told["requests"] / told["wall_s"] if told["wall_s"] else 0.0
    found = [
        f"{told['requests']:,} requests in {told['lasted_s']:,.1f} s: {ends}",
        f"  {'':12}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}",
    ]
    for name, words in (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "whole")):
        cells = "".join(f"{_seconds(value):>10}" for value in told[name].values())
        found.append(f"  {words:12}{cells}")
    found.append(
        f"{told['requests_per_s']:.2f} requests/s, {told['output_tokens_per_s']:,.0f} tokens/s; "
        f"{told['prefix_hit_rate']:.1%} of prompts' tokens were cached"
    )
    if "slo" in told:
        slo = told["slo"]
        share = "-" if slo["attainment"] is None else f"{slo['attainment']:.1%}"
        found.append(
            f"SLO (TTFT {_seconds(slo['ttft_s'])}, TPOT {_seconds(slo['tpot_s'])}): "
            f"{share} of requests, {slo['wanted']:.1%} wanted; "
            f"goodput {slo['goodput_per_s']:.2f}/s"
        )
    if not told["stable"]:
        found.append(_unstable(told))
    busy = [one["busy"] for one in told["replicas"]]
    shown = f"; busy {min(busy):.0%} to {max(busy):.0%}" if busy else ""
    cost = f"{told['replica_hours']:.2f} replica-hours, ${told['usd']:.2f}"
    found.append(f"{len(busy)} replicas, {cost}{shown}")
    found.append(
        f"{told['events']:,} events, digest {told['digest']}; {per_s:,.0f} requests/s simulated"
    )
    return found


def _unstable(told: dict[str, Any]) -> str:
    flying, wait = told["in_flight"], told["wait_s"]
    return (
        "UNSTABLE: its backlog grows while requests come, from "
        f"{flying['third_quarter']:.0f} in flight in the third quarter of the arrivals to "
        f"{flying['last_quarter']:.0f} in the last, first tokens from "
        f"{_seconds(wait['third_quarter'])} to {_seconds(wait['last_quarter'])}. The times "
        "above say how long the run was, not how good the platform is."
    )


def _many(told: dict[str, Any]) -> list[str]:
    count = len(told["seeds"])
    found = [f"{count} runs, seeds {told['seeds'][0]} to {told['seeds'][-1]}; 95 % intervals"]
    found += [f"  {name:26}{_interval(one):>24}" for name, one in told["figures"].items()]
    if told["stable"] < count:
        found.append(
            f"UNSTABLE in {count - told['stable']} of {count} runs: their backlog grew while "
            "requests came, and times say how long the runs were"
        )
    return found


def _compared(told: dict[str, Any]) -> list[str]:
    count = len(told["seeds"])
    found = [
        f"{count} runs of each, with the same requests",
        f"  {'':26}{'this':>20}{'the other':>20}{'difference':>22}",
    ]
    for one in told["compared"]:
        first, second, gap = (_interval(one[key]) for key in ("first", "second", "difference"))
        mark = "  differs" if one["apart"] else ""
        found.append(f"  {one['name']:26}{first:>20}{second:>20}{gap:>22}{mark}")
    if min(told["stable"]) < count:
        found.append(f"UNSTABLE: {count - told['stable'][0]} and {count - told['stable'][1]} runs")
    if count == 1:
        found.append("of one seed nothing is known of chance: --seeds 5")
    return found


def _found(told: dict[str, Any]) -> list[str]:
    found = told["found"]
    return [
        f"the SLO is kept up to {found['kept_per_s']:.3g} requests/s "
        f"({found['attainment']:.1%} of requests), and missed at {found['missed_per_s']:.3g}/s; "
        f"{found['runs']} runs"
    ]


def _interval(one: dict[str, Any]) -> str:
    half = "" if one["half"] is None else f" ± {one['half']:.2g}"
    return f"{one['mean']:.4g}{half}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"
