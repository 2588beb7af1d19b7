"""A run in words: what happened, and what each oracle found."""

from collections import Counter

from chaos_attack import Evidence
from chaos_oracles import ORACLES, findings, gap_bound, service, service_bound

_MOST = 20


def verdict(evidence: Evidence) -> str:
    """Empty where all is well; else the seed and every finding, with its request ids."""
    found = findings(evidence)
    lines = [f"seed {evidence.plan.seed}: {len(found)} oracles are red"] if found else []
    for name, said in found.items():
        lines.append(f"{name}: {len(said)} findings")
        lines += [f"  {one}" for one in said[:_MOST]]
    return "\n".join(lines)


def summary(evidence: Evidence) -> str:
    """What one run did."""
    plan, asked = evidence.plan, evidence.asked
    ends = Counter(one.end for one in asked)
    bases = Counter(row.basis for row in evidence.entries)
    details = evidence.decisions.values()
    retried = sum(detail["retries"] > 0 for detail in details)
    resumed = sum(detail["resumed"] > 0 for detail in details)
    workers = sum(death.of_worker for death in evidence.deaths)
    largest = max((abs(a.counters[0] - a.counters[1]) for a in evidence.samples), default=0.0)
    apart = abs(service(evidence, "alpha") - service(evidence, "beta"))
    return "\n".join(
        [
            f"seed {plan.seed}: {len(asked)} requests in {evidence.load_s:.1f} s",
            f"kills: {workers} of workers, {len(evidence.deaths) - workers} of replicas",
            f"clients saw: {_told(ends)}",
            f"entries: {len(evidence.entries)}, by {_told(bases)}",
            f"sent again: {retried}, streams that went on elsewhere: {resumed}",
            f"quiet {evidence.recovery_s:.1f} s after the last request",
            f"counters of two that queue: {largest:.0f} apart, bound {gap_bound(evidence):g}"
            f", in {len(evidence.samples)} of {evidence.looks} looks",
            f"service: {apart:.0f} weighed tokens apart, bound {service_bound(evidence):g}"
            f", alpha was served {service(evidence, 'alpha'):.0f}",
            f"decisions replayed: {sum(len(detail['decisions']) for detail in details)}",
            f"oracles: {len(ORACLES)}, red: {', '.join(findings(evidence)) or 'none'}",
        ]
    )


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())
