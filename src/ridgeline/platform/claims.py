"""Verdicts on claims: each number computed anew, beside the one that is usually stated.

A claim's working is an expression over the catalog and registered laws (`expressions`); the text
of the ledger's own formula is never evaluated. Two questions are kept apart: does our number come
out again within 1 %, and is the usual one right. Where it is not, the reason is told.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from ridgeline import ledger
from ridgeline.errors import RidgelineError, SpecError, UnitError
from ridgeline.platform.expressions import Worked, evaluate
from ridgeline.platform.figures import Figure, figure, is_near, rounds_to
from ridgeline.quantity import Quantity
from ridgeline.show import number
from ridgeline.units import Unit, parse_unit

#: How far our number may be from the ledger's.
TOLERANCE = 0.01
NO_WORKING = "no working yet"


class Verdict(StrEnum):
    """What came of a claim."""

    REPRODUCED = "reproduced"
    OFF = "off"
    WRONG = "wrong"
    NOT_COMPUTED = "not computed"
    #: Our own number does not come out again, or its working fails: a fault of ours.
    FAILED = "not reproduced"
    #: A row of a user's file that is not as it should be.
    REFUSED = "refused"


@dataclass(frozen=True)
class Checked:
    """A claim with its verdict.

    `values` are numbers in `unit`, and truths; `off` is how far the stated number is from ours, as
    a share of ours. `why` says what was mixed up, what the number rests on, why nothing was
    computed, or what failed; `error` says why a row of a user's file was refused.
    """

    claim: ledger.Claim
    verdict: Verdict
    working: ledger.Working | None = None
    values: tuple[float | bool, ...] = ()
    unit: str = ""
    off: float | None = None
    why: str = ""
    worked: Worked | None = field(default=None, repr=False)
    error: RidgelineError | None = field(default=None, repr=False)

    @property
    def told(self) -> str:
        """The verdict in words."""
        if self.verdict is Verdict.REPRODUCED and not self.claim.stated and not self.claim.computed:
            return "computed"  # nothing to compare with
        if self.off is None or self.verdict not in (Verdict.OFF, Verdict.WRONG):
            return str(self.verdict)
        percent = f"off by {100 * self.off:+.0f} %"
        return f"wrong, {percent}" if self.verdict is Verdict.WRONG else percent

    @property
    def value(self) -> str:
        """What was computed, with its unit."""
        return shown(self.values, self.unit)

    @property
    def is_folklore_wrong(self) -> bool:
        """Whether the number that is usually told is not right."""
        return self.verdict in (Verdict.OFF, Verdict.WRONG)

    @property
    def is_assuming(self) -> bool:
        """Whether the number comes out only with inputs that the claim itself does not state."""
        return self.claim.verdict.startswith("needs assumption")

    @property
    def is_fault(self) -> bool:
        """Whether we cannot tell what we should: our number is lost, or was never worked out."""
        return self.verdict is Verdict.FAILED or self.why == NO_WORKING

    @property
    def inputs(self) -> list[Quantity]:
        """The named numbers that it starts from."""
        steps = (
            step for root in (self.worked.roots if self.worked else ()) for step in root.walk()
        )
        found = {step.name: step for step in steps if step.name and not step.op}
        return list(found.values())


def check_ledger(claims: Iterable[ledger.Claim] | None = None) -> list[Checked]:
    """The verdict on each claim; on all of the ledger where none are named."""
    workings = ledger.workings()
    wanted = ledger.claims() if claims is None else claims
    return [_checked(claim, workings.get(claim.id)) for claim in wanted]


def find(name: str) -> ledger.Claim:
    """The claim of that id; SpecError where there is none."""
    claims = {claim.id: claim for claim in ledger.claims()}
    wanted = name.strip().upper()
    if wanted not in claims:
        remedy = f"{min(claims)} to {max(claims)}; `ridgeline check claims` lists them"
        raise SpecError(f'there is no claim "{name}"', where="claims", remedy=remedy)
    return claims[wanted]


def of_system(system: str) -> list[ledger.Claim]:
    """The claims about one system; SpecError where the ledger has no such system."""
    wanted = system.strip().upper()
    known = {one.id for one in ledger.systems()}
    if wanted not in known:
        remedy = "`ridgeline systems --all` lists them"
        raise SpecError(f'there is no system "{system}"', where="--system", remedy=remedy)
    return [claim for claim in ledger.claims() if claim.system == wanted]


def shown(values: tuple[float | bool, ...], unit: str) -> str:
    """`"2,048 endpoints"`, `"false (1.76, 4.793 ms)"`, `"17 preemptions, 0 completed"`."""
    truths = [str(value).lower() for value in values if isinstance(value, bool)]
    numbers = [number(value) for value in values if not isinstance(value, bool)]
    nouns = unit.split(", ")
    if len(nouns) == len(numbers):
        told = ", ".join(f"{one} {noun}".rstrip() for one, noun in zip(numbers, nouns, strict=True))
    else:
        told = f"{', '.join(numbers)} {unit}".rstrip() if numbers else ""
    if not truths:
        return told
    return f"{truths[0]} ({told})" if told else truths[0]


def in_unit(worked: Worked, unit: str, where: str) -> tuple[float | bool, ...]:
    """The parts of a result in a unit, or each in its own (`"preemptions, completed"`).

    SpecError where one is of another kind.
    """
    numbers = [part for part in worked.parts if not isinstance(part, bool)]
    units = unit.split(", ") if unit.count(", ") == len(numbers) - 1 else [unit] * len(numbers)
    told = (_part_in(part, one, where) for part, one in zip(numbers, units, strict=True))
    return tuple(part if isinstance(part, bool) else next(told) for part in worked.parts)


def _part_in(part: Any, unit: str, where: str) -> float:
    scale, symbol = _scaled(unit)
    known = _known_unit(symbol, part, where)
    dimension = part.dimension if isinstance(part, Quantity) else ()
    if known.dimension != dimension:
        told = part.unit.symbol if isinstance(part, Quantity) and dimension else "a plain number"
        problem = f"is {told}, not in {unit or 'no unit'}"
        raise SpecError(problem, where=where, remedy="another unit, or another working")
    bare = part.value if isinstance(part, Quantity) else part
    told_in = float(bare) / known.factor / scale
    if not math.isfinite(told_in):
        raise SpecError(f"is too large in {symbol}", where=where, remedy="a larger unit")
    return told_in


_LETTERS = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def _scaled(unit: str) -> tuple[float, str]:
    """`"M GPU h"` counts millions; `"$"` and `"$M"` are written for dollars."""
    written = unit.replace("$M", "MUSD").replace("$", "USD").strip()
    letter, _, rest = written.partition(" ")
    if letter in _LETTERS and (rest or letter != "B"):
        return _LETTERS[letter], rest
    return 1.0, written


def _known_unit(symbol: str, part: Any, where: str) -> Unit:
    """The unit; of a plain number any words are a noun that stands behind it."""
    try:
        return parse_unit(symbol)
    except UnitError as error:
        if isinstance(part, Quantity) and part.dimension:
            raise SpecError(error.problem, where=f"{where}, unit", remedy=error.remedy) from error
        return parse_unit("")


def _checked(claim: ledger.Claim, working: ledger.Working | None) -> Checked:
    if working is None:
        return Checked(claim, Verdict.NOT_COMPUTED, why=_why_not(claim))
    where = f"{claim.id} ({working.where})"
    try:
        worked = evaluate(working.expression, where=where)
        values = in_unit(worked, working.unit, where)
    except RidgelineError as error:
        return Checked(claim, Verdict.FAILED, working, why=str(error))
    fault = difference(values, figure(claim.computed), TOLERANCE)
    if fault:
        return Checked(claim, Verdict.FAILED, working, values, working.unit, None, fault, worked)
    verdict = _of_folklore(claim)
    off = _off(claim, values) if verdict in (Verdict.OFF, Verdict.WRONG) else None
    why = folklore().get(claim.id, "")
    return Checked(claim, verdict, working, values, working.unit, off, why, worked)


@lru_cache
def folklore() -> dict[str, str]:
    """Our own words on a claim: why the usual number is wrong, what ours rests on."""
    return ledger.folklore()


def _why_not(claim: ledger.Claim) -> str:
    if claim.verdict.startswith("structural"):
        return "a count or a given"
    if claim.verdict == "reproduced (published value)":
        return "a published input"
    return NO_WORKING


def _of_folklore(claim: ledger.Claim) -> Verdict:
    """What the ledger found about the number that is usually stated."""
    if "wrong" in claim.verdict or "fails" in claim.verdict:
        return Verdict.WRONG
    if "off by" in claim.verdict:
        return Verdict.OFF
    return Verdict.REPRODUCED


def _off(claim: ledger.Claim, values: tuple[float | bool, ...]) -> float | None:
    """How far the stated number is from ours; of a statement in words what the ledger found."""
    stated = figure(claim.stated)
    ours = next((value for value in values if not isinstance(value, bool)), None)
    if stated.numbers and ours and stated.truth is None:
        return stated.numbers[0] / ours - 1
    found = re.search(r"off by ([-+]\d+)%", claim.verdict)
    return float(found[1]) / 100 if found else None


def difference(values: tuple[float | bool, ...], ledgers: Figure, tolerance: float) -> str:
    """What keeps computed values from being the ledger's figure; empty where they are the same.

    The first number has to be within the tolerance; numbers beside a truth are often printed with
    two digits, so there it is enough that ours rounds to them.
    """
    truths = [value for value in values if isinstance(value, bool)]
    numbers = [value for value in values if not isinstance(value, bool)]
    if (truths[0] if truths else None) != ledgers.truth:
        return f"{shown(values, '')} where the ledger has {ledgers.text}"
    if len(numbers) > len(ledgers.numbers) or not values:
        return f"{len(numbers)} numbers where the ledger has {ledgers.text}"
    for ours, theirs, place in zip(numbers, ledgers.numbers, ledgers.places, strict=False):
        is_same = is_near(ours, theirs, tolerance)
        if not is_same and not (truths and rounds_to(ours, theirs, place)):
            return f"{number(ours)} where the ledger has {ledgers.text}"
    return ""
