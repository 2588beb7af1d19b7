"""Reports as text of 80 columns: the answer first, then how it is spread, then what to know."""

from collections.abc import Sequence
from textwrap import wrap

from ridgeline.serving.bench.compare import Finding, named
from ridgeline.serving.bench.knee import Verdict
from ridgeline.serving.bench.report import Report
from ridgeline.serving.bench.spread import Spread
from ridgeline.serving.bench.sweep import Sweep

WIDTH = 80
LEAST_REQUESTS_FOR_P99 = 100


def run_text(report: Report) -> str:
    """One run: throughput and goodput, the percentiles, the client's own part, the notes."""
    lines = [_headline(report), *_requests(report), ""]
    lines += _spreads(report)
    lines += ["", _client(report), *_notes(report)]
    return "\n".join(lines)


def _headline(report: Report) -> str:
    tokens = _number(report.output_tokens_per_s)
    rates = f"{_number(report.requests_per_s)} requests/s, {tokens} tokens/s"
    if report.slo is None:
        return f"{rates} of output"
    good = report.goodput
    return f"{rates} of output, goodput {100 * good.share:.1f} % ({_number(good.per_s)} requests/s)"


def _requests(report: Report) -> list[str]:
    setting = report.setting
    total = report.completed + report.failed
    what = f"{report.completed} of {total} requests answered in {report.duration_s:.1f} s"
    lines = [
        f"  {setting.model}: {setting.loop}, {setting.sizes}",
        f"  {what}, seed {setting.seed}",
    ]
    if report.slo is not None:
        lines.append(f"  goodput: {report.goodput.good} of {total} within {report.slo}")
    if report.errors:
        kinds = ", ".join(f"{kind} {count}x" for kind, count in report.errors.items())
        lines.append(f"  failed: {kinds}")
    if report.interrupted:
        lines.append(f"  interrupted: {report.unfinished} requests were in flight and not counted")
    return lines


def _spreads(report: Report) -> list[str]:
    rows = (
        ("TTFT", "ms", 1e3, report.ttft),
        ("TTFT from schedule", "ms", 1e3, None if report.setting.closed else report.scheduled_ttft),
        ("TPOT", "ms", 1e3, report.tpot),
        ("ITL", "ms", 1e3, report.itl),
        ("E2E", "s", 1.0, report.e2e),
        ("send lag", "ms", 1e3, None if report.setting.closed else report.send_lag),
    )
    head = f"{'':24}" + "".join(
        f"{name:>9}" for name in ("mean", "p50", "p90", "p95", "p99", "max")
    )
    return [head, *(_row(name, unit, by, seen) for name, unit, by, seen in rows if seen)]


def _row(name: str, unit: str, by: float, seen: Spread) -> str:
    values = (seen.mean, seen.p50, seen.p90, seen.p95, seen.p99, seen.max)
    return f"{f'  {name} {unit}':24}" + "".join(f"{_number(by * value):>9}" for value in values)


def _number(value: float) -> str:
    """About three digits, never an exponent."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def _client(report: Report) -> str:
    strain = report.strain
    late = f"event loop {1e3 * strain.loop_late_s:.1f} ms late at p99"
    return f"  client: {100 * strain.cpu_share:.0f} % of a core, {late}"


def _notes(report: Report) -> list[str]:
    notes = list(report.notes)
    if report.completed < LEAST_REQUESTS_FOR_P99:
        notes.append(f"{report.completed} requests are few: p95 and p99 rest on one or two of them")
    return [line for note in notes for line in _wrapped(f"note: {note}")]


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")


def level_text(report: Report, verdict: Verdict) -> str:
    """One level of a sweep in a line, told as it ends."""
    good = f"goodput {100 * report.goodput.share:.1f} %"
    said = "holds" if verdict.borne else verdict.reason
    return f"  {named(report)}: {_number(report.output_tokens_per_s)} tokens/s, {good}: {said}"


def sweep_text(found: Sweep) -> str:
    """The knee first, then the levels from the lowest load up, then the findings."""
    lines = [*_answer(found), "", *_levels(found)]
    lines += _finding_lines(found.findings[:1])
    if len(found.findings) > 1:
        lines.append(f"    and so at each of the {len(found.findings) - 1} levels above")
    if found.levels:
        lines += ["", _client(max(found.levels, key=lambda level: level.strain.cpu_share))]
    return "\n".join(lines)


def _answer(found: Sweep) -> list[str]:
    best = found.at_best()
    if best is None:
        return [f"No load held: {found.reason or 'interrupted before the first level ended'}"]
    held = f"goodput {100 * best.goodput.share:.1f} %"
    within = f" within {best.slo}" if best.slo else " of whole answers"
    lines = [f"{found.best:.3g} {found.unit} hold: {held}{within}"]
    lines.append(f"  {_number(best.output_tokens_per_s)} output tokens/s there, {_latency(best)}")
    above = [level for level in found.levels if (level.setting.load or 0) > (found.best or 0)]
    stop = found.reason or "interrupted; it may be higher"
    lines.append(f"  above, at {above[0].setting.load:.3g}: {stop}" if above else f"  {stop}")
    return lines


def _latency(level: Report) -> str:
    ttft = f"TTFT p99 {_number(1e3 * level.ttft.p99)} ms" if level.ttft else "no TTFT"
    return f"{ttft}, TPOT p50 {_number(1e3 * level.tpot.p50)} ms" if level.tpot else ttft


def _levels(found: Sweep) -> list[str]:
    heads = ("answered", "tokens/s", "goodput %", "TTFT p50", "p99 ms", "TPOT p50", "p99 ms")
    lines = [
        f"{found.unit:>12}"
        + "".join(f"{head:>10}" for head in heads[:3])
        + "".join(f"{head:>9}" for head in heads[3:])
    ]
    for level in found.levels:
        load = f"{level.setting.load:.3g}" + (" *" if level.setting.load == found.best else "  ")
        cells = f"{load:>12}{f'{level.completed}/{level.completed + level.failed}':>10}"
        cells += f"{_number(level.output_tokens_per_s):>10}{100 * level.goodput.share:>10.1f}"
        for seen in (level.scheduled_ttft, level.tpot):
            cells += "".join(f"{_number(1e3 * v) if seen else '-':>9}" for v in _pair(seen))
        lines.append(cells)
    return lines


def _pair(seen: Spread | None) -> tuple[float, float]:
    return (seen.p50, seen.p99) if seen else (0.0, 0.0)


def _finding_lines(found: Sequence[Finding]) -> list[str]:
    return [line for one in found for line in _wrapped(f"flagged: {one}")]


def compare_text(before: Report, after: Report, finding: Finding | None) -> str:
    """Two runs side by side, the verdict first."""
    rose = after.output_tokens_per_s - before.output_tokens_per_s
    fell = after.goodput.share - before.goodput.share
    if finding is not None:
        first = _finding_lines([finding])
    else:
        first = [f"Not flagged: output {rose:+,.1f} tokens/s, goodput {100 * fell:+.1f} points"]
    rows: list[tuple[str, float, float]] = [
        ("output tokens/s", before.output_tokens_per_s, after.output_tokens_per_s),
        ("requests/s", before.requests_per_s, after.requests_per_s),
        ("goodput %", 100 * before.goodput.share, 100 * after.goodput.share),
        ("goodput requests/s", before.goodput.per_s, after.goodput.per_s),
    ]
    for name, a, b in (("TTFT", before.ttft, after.ttft), ("TPOT", before.tpot, after.tpot)):
        if a and b:
            rows.append((f"{name} p50 ms", 1e3 * a.p50, 1e3 * b.p50))
            rows.append((f"{name} p99 ms", 1e3 * a.p99, 1e3 * b.p99))
    table = [f"  {name:20}{_number(a):>12}{_number(b):>12}" for name, a, b in rows]
    return "\n".join([*first, "", f"  {'':20}{'before':>12}{'after':>12}", *table])
