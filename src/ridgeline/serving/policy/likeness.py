"""Whether a model answers as its reference does, category by category.

A reference holds prompts with what a deployment that is known to be good answered. Categories are
judged one by one: a mean over all of them would hide the one that broke.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline.serving.policy.answers import Category, Measured, Pair, measure
from ridgeline.serving.policy.config_faults import CRITERIA, Criteria, Fault, config_faults
from ridgeline.serving.policy.draws import judge_draws


@dataclass(frozen=True, slots=True)
class Finding:
    """A category's verdict. `measured` is None where nothing could be measured."""

    category: Category
    prompts: int
    passed: bool
    reason: str
    measured: Measured | None = None


@dataclass(frozen=True, slots=True)
class Likeness:
    """The verdicts in the categories' order, and the faults that explain those which failed."""

    findings: tuple[Finding, ...]
    faults: tuple[Fault, ...]

    @property
    def passed(self) -> bool:
        """Whether every category did."""
        return all(finding.passed for finding in self.findings)

    @property
    def reason(self) -> str:
        """In one line."""
        if self.faults:
            return "; ".join(f"{fault.kind}: {fault.evidence}" for fault in self.faults)
        failed = [one for one in self.findings if not one.passed]
        if failed:
            return "; ".join(f"{one.category}: {one.reason}" for one in failed)
        found = [one.measured.difference for one in self.findings if one.measured]
        return (
            f"{len(self.findings)} categories are as in the reference, "
            f"log-probabilities differ by {max(found, default=0.0):.4f} at most"
        )


def compare(
    pairs: Sequence[Pair], criteria: Criteria = CRITERIA, *, repeats: bool = True
) -> Likeness:
    """Judge every category that `pairs` has, then look for what explains those which failed.

    `repeats`: the reference's server gave the same answer to the same seed.
    """
    findings = []
    for category in Category:
        those = [pair for pair in pairs if pair.category is category]
        if those:
            findings.append(_judged(category, those, criteria, repeats=repeats))
    failed = {finding.category for finding in findings if not finding.passed}
    faults = config_faults(pairs, failed, criteria, repeats=repeats)
    return Likeness(tuple(findings), tuple(faults))


def _judged(
    category: Category, pairs: Sequence[Pair], criteria: Criteria, *, repeats: bool
) -> Finding:
    """What was not answered, or read as something else, has failed; the rest is measured."""
    refused = [pair for pair in pairs if pair.seen.refused]
    if refused:
        reason = f"{len(refused)} refused; {refused[0].name}: {refused[0].seen.refused}"
        return Finding(category, len(pairs), False, reason)
    is_drawn = category is Category.DEFAULTS
    measured = None if is_drawn else measure(pairs)
    if other := sum(not pair.has_same_prompt for pair in pairs):
        reason = f"{other} of {len(pairs)} prompts were read as other tokens"
        return Finding(category, len(pairs), False, reason, measured)
    if is_drawn:
        drawn = judge_draws(pairs, criteria.deviations, repeats=repeats)
        return Finding(category, len(pairs), *drawn)
    if measured is None:
        return Finding(category, len(pairs), False, "no log-probabilities came")
    return Finding(category, len(pairs), *_judge_measured(measured, criteria), measured)


def _judge_measured(measured: Measured, criteria: Criteria) -> tuple[bool, str]:
    if measured.difference > criteria.same_difference:
        return False, f"log-probabilities differ by {measured.difference:.3f}"
    if measured.same_top < criteria.same_top:
        return False, f"{1 - measured.same_top:.0%} of the likeliest tokens are others"
    return True, "as in the reference"
