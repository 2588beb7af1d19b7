"""Verdicts on claims as text for people, and as data for programs: both say the same."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ridgeline.platform.claims import Checked, Verdict
from ridgeline.quantity import Quantity
from ridgeline.working.formula import formula
from ridgeline.working.lines import WIDTH, Line, wrapped
from ridgeline.working.why import why

_INDENT = "       "
_VERDICT, _VALUE = 21, 24
_UNSTATED = ("", "not stated")
_STYLES = {
    Verdict.REPRODUCED: "green",
    Verdict.OFF: "yellow",
    Verdict.WRONG: "yellow",
    Verdict.FAILED: "bold red",
    Verdict.REFUSED: "bold red",
    Verdict.NOT_COMPUTED: "dim",
}


def listing(checked: Sequence[Checked], *, is_own: bool) -> list[Line]:
    """All verdicts, what was not computed, and how many there are of each."""
    computed = [one for one in checked if one.verdict is not Verdict.NOT_COMPUTED]
    missing = [one for one in checked if one.verdict is Verdict.NOT_COMPUTED]
    lines = [line for one in computed for line in _entry(one)]
    if missing:
        head = "Not computed, since they are counts, givens or published inputs:"
        lines += [[], [(head, "bold")], *(line for one in missing for line in _missing(one))]
    if any(one.is_assuming for one in computed):
        lines += [[], [("* with inputs that the claim does not state; --why shows them", "dim")]]
    return [*lines, [], *summary(checked, is_own=is_own)]


def _entry(one: Checked) -> list[Line]:
    is_told = one.claim.stated not in _UNSTATED and not one.error
    stated = f"stated: {one.claim.stated}" if is_told else ""
    value = one.value or ("" if one.error else "-")
    fits = len(_INDENT) + _VERDICT + max(len(value), _VALUE) + len(stated) + 3 <= WIDTH
    beside = f"{value:<{_VALUE}}  {stated}" if fits else value
    told = f"{one.told} *" if one.is_assuming and not one.is_folklore_wrong else one.told
    first: Line = [
        (f"{one.claim.id:<{len(_INDENT) - 1}} ", ""),
        (f"{told:<{_VERDICT}} ", _STYLES[one.verdict]),
        (beside.rstrip(), ""),
    ]
    lines = [first, *([] if fits else wrapped(stated, WIDTH, _INDENT))]
    lines += wrapped(one.claim.claim, WIDTH, _INDENT)
    if one.why and not one.error:  # the error stands below all of them
        lines += [line for text in reasons(one) for line in wrapped(text, WIDTH, f"{_INDENT}  ")]
    return lines


def _missing(one: Checked) -> list[Line]:
    stated = f" ({one.claim.stated})" if one.claim.stated else ""
    return wrapped(
        f"{one.why}: {one.claim.claim}{stated}", WIDTH, _INDENT, first=f"{one.claim.id:<7}"
    )


def reasons(one: Checked) -> list[str]:
    """Why the usual number is wrong, or what failed: our own words, then the ledger's."""
    note = one.claim.note
    sentence = note[:1].upper() + note[1:] + ("" if note.endswith(".") else ".") if note else ""
    return [text for text in (one.why, sentence) if text]


def summary(checked: Sequence[Checked], *, is_own: bool) -> list[Line]:
    """How many claims came out how, and what to ask next."""
    found = Counter(one.verdict for one in checked)
    wrong = sum(one.is_folklore_wrong for one in checked)
    counts = [
        f"{len(checked)} claims: {found[Verdict.REPRODUCED]} reproduced",
        f"{wrong} stated wrongly" if is_own else f"{wrong} where the usual number is wrong",
        f"{found[Verdict.NOT_COMPUTED]} not computed",
    ]
    if found[Verdict.FAILED]:
        counts.append(f"{found[Verdict.FAILED]} of ours NOT reproduced")
    if found[Verdict.REFUSED]:
        counts.append(f"{found[Verdict.REFUSED]} REFUSED")
    asked = "'line 2'" if is_own else "C196"
    rest = "--wrong | --json" if is_own else "--wrong | --system S100 | --json"
    return [
        [(", ".join(counts), "bold")],
        [(f"ridgeline check claims {'FILE.csv ' if is_own else ''}--why {asked} | {rest}", "dim")],
    ]


def explanation(one: Checked) -> list[Line]:
    """A claim with all that is known of it, and the derivation of each of its numbers."""
    claim = one.claim
    system = f" ({claim.system})" if claim.system else ""
    stated = "nothing" if claim.stated in _UNSTATED else claim.stated
    lines = [
        *wrapped(f"{claim.id}{system}: {claim.claim}", WIDTH, "  ", "bold", first=""),
        [("  ", ""), (one.told, _STYLES[one.verdict])],
        [(f"  computed {one.value or 'nothing'}; stated {stated}", "")],
        *(line for text in reasons(one) for line in wrapped(text, WIDTH, "  ")),
    ]
    if claim.verdict:
        told = f"ledger: {claim.computed}, {claim.verdict}. Inputs: {claim.inputs}"
        lines += wrapped(told, WIDTH, "  ", "dim")
    if one.working:
        lines += wrapped(f"working: {one.working.expression}", WIDTH, "  ", "dim")
    roots = _distinct(one.worked.roots) if one.worked else []
    for index, root in enumerate(roots, 1):
        lines += [[], *why(root, claim.id if len(roots) == 1 else f"{claim.id}, {index}")]
    return lines


def _distinct(roots: Sequence[Quantity]) -> list[Quantity]:
    """Numbers that were compared and are told too, once."""
    return list({(formula(root), repr(root.value)): root for root in roots}.values())


def as_data(one: Checked) -> dict[str, Any]:
    """Everything about a verdict."""
    claim = one.claim
    return {
        "id": claim.id,
        "system": claim.system,
        "claim": claim.claim,
        "verdict": str(one.verdict),
        "told": one.told,
        "value": one.value,
        "values": list(one.values),
        "unit": one.unit,
        "stated": claim.stated,
        "off": one.off,
        "why": one.why,
        "note": claim.note,
        "inputs": claim.inputs,
        "formula": claim.formula,
        "assumes_inputs": one.is_assuming,
        "ledger_computed": claim.computed,
        "ledger_verdict": claim.verdict,
        "working": one.working.expression if one.working else None,
        "starts_from": [_input(step) for step in one.inputs],
    }


def _input(step: Quantity) -> dict[str, Any]:
    return {
        "name": step.name,
        "value": float(step.value) / step.unit.factor,
        "unit": step.unit.symbol,
        "provenance": str(step.provenance),
        "source": step.source,
    }
