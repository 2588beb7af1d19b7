"""A user's own claims: a table of statements, each judged against what its working gives.

    claim,working,unit,stated
    70B weights in bf16,"model(""llama-3.1-70b"").weights_bytes(""bf16"")",GB,140 GB
    H100 batch where decode turns compute-bound,accelerator(...) ...,,~300

`stated` is a number with or without its unit, `true` or `false`, or a bound (`>2`, `<=0.1`);
`tolerance` is a share (`0.05`, `5 %`), 1 % where there is none. Whatever is wrong with the table
is a SpecError that names its line; a row that is wrong is refused, and the others are judged.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ridgeline.errors import RidgelineError, SpecError
from ridgeline.ledger import Claim, Working
from ridgeline.platform.claims import TOLERANCE, Checked, Verdict, in_unit
from ridgeline.platform.expressions import evaluate
from ridgeline.platform.figures import Figure, agrees, figure
from ridgeline.units import parse_number, parse_unit

_NEEDED = ("claim", "unit", "stated")
_WORKING = ("working", "formula")
_MAY = ("tolerance", "id", "note")
_EXAMPLE = "the header `claim,working,unit,stated[,tolerance]`"


def check_own(path: Path) -> list[Checked]:
    """The verdict on each claim of a file; SpecError where it is no table of claims.

    A row that is not as it should be is REFUSED, with its error.
    """
    return [_judged_or_refused(path, line, row) for line, row in _rows(path)]


def find_own(checked: list[Checked], name: str) -> Checked:
    """The claim of that id or line; SpecError where there is none."""
    wanted = name.strip().lower()
    for one in checked:
        if one.claim.id.lower() in (wanted, f"line {wanted}"):
            return one
    known = ", ".join(one.claim.id for one in checked[:5])
    raise SpecError(f'there is no claim "{name}"', where="--why", remedy=f"{known} ...")


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Each line of the table with its number; empty ones are passed over."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise SpecError(problem, where=str(path), remedy="a CSV file of claims") from error
    reader = csv.DictReader(lines, strict=True, restkey="")
    try:
        _check_header(path, reader.fieldnames or ())
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        where = f"{path}, line {reader.reader.line_num}"
        raise SpecError(str(error), where=where, remedy='text with "quotes" doubled') from error
    if not rows:
        raise SpecError("has no claims", where=str(path), remedy=f"a line under {_EXAMPLE}")
    for line, row in rows:
        told = {key.strip(): _told(value) for key, value in row.items()}
        if any(told.values()):
            yield line, told


def _told(cell: str | list[str] | None) -> str:
    """A cell, or all that stand beyond the header."""
    return (",".join(cell) or "," if isinstance(cell, list) else cell or "").strip()


def _check_header(path: Path, columns: Iterable[str]) -> None:
    names = [(name or "").strip() for name in columns]
    where = f"{path}, line 1"
    unknown = [name for name in names if name not in (*_NEEDED, *_WORKING, *_MAY)]
    if unknown:
        raise SpecError(f'unknown column "{unknown[0]}"', where=where, remedy=_EXAMPLE)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise SpecError(f'the column "{twice}" is there twice', where=where, remedy=_EXAMPLE)
    workings = [name for name in names if name in _WORKING]
    missing = [name for name in _NEEDED if name not in names]
    if missing or len(workings) != 1:
        problem = f"no column {missing[0]}" if missing else "one column has to be the working"
        raise SpecError(problem, where=where, remedy=_EXAMPLE)


def _judged_or_refused(path: Path, line: int, row: dict[str, str]) -> Checked:
    try:
        return _judged(path, line, row)
    except RidgelineError as error:
        return Checked(_claim(line, row), Verdict.REFUSED, why=str(error), error=error)


def _claim(line: int, row: dict[str, str]) -> Claim:
    return Claim(
        id=row.get("id") or f"line {line}",
        system="",
        claim=row["claim"],
        inputs="",
        formula="",
        computed="",
        stated=row["stated"],
        verdict="",
        note=row.get("note", ""),
    )


def _judged(path: Path, line: int, row: dict[str, str]) -> Checked:
    where = f"{path}, line {line}"
    if "" in row:
        remedy = "quote a cell that holds a comma"
        raise SpecError("has too many cells", where=where, remedy=remedy)
    text = row.get("working") or row.get("formula") or ""
    if not text or not row["claim"]:
        field = "claim" if not row["claim"] else "working"
        raise SpecError("is empty", where=f"{where}, {field}", remedy=_EXAMPLE)
    worked = evaluate(text, where=f"{where}, working")
    values = in_unit(worked, row["unit"], f"{where}, working")
    stated = _stated(row["stated"], row["unit"], f"{where}, stated")
    tolerance = _tolerance(row.get("tolerance", ""), f"{where}, tolerance")
    verdict, off = _verdict(values, stated, tolerance, f"{where}, stated")
    claim = _claim(line, row)
    working = Working(claim.id, text, row["unit"], where)
    return Checked(claim, verdict, working, values, row["unit"], off, worked=worked)


def _stated(text: str, unit: str, where: str) -> Figure:
    """What is stated, its numbers in the claim's unit."""
    told = figure(text)
    if text and told.is_empty:
        raise SpecError(f'"{text}" is no number', where=where, remedy="a number, true or false")
    _check_finite(told, where)
    match = _STATED.fullmatch(text)
    if match is None or told.truth is not None or not match[3]:
        return told
    try:
        wanted = parse_unit(unit)
        value, _ = parse_number(f"{match[2]} {match[3]}", wanted.dimension)
    except RidgelineError as error:
        remedy = f"the number in {unit}" if unit else "a plain number"
        raise SpecError(error.problem, where=where, remedy=error.remedy or remedy) from error
    numbers = (value / wanted.factor,)
    return _check_finite(Figure(None, told.sign, numbers, told.places[:1], text), where)


def _check_finite(told: Figure, where: str) -> Figure:
    if not all(math.isfinite(one) for one in told.numbers):
        short = told.text if len(told.text) <= 20 else f"{told.text[:17]}..."
        raise SpecError(f'"{short}" is too large', where=where, remedy="a number below 1e308")
    return told


#: A sign, a number, a unit.
_STATED = re.compile(r"\s*(>=|<=|[><~≥≤])?\s*([-+0-9.,]+(?:[eE][-+]?\d+)?)\s*(.*?)\s*")


def _tolerance(text: str, where: str) -> float:
    if not text:
        return TOLERANCE
    try:
        share, _ = parse_number(text, ())
    except RidgelineError as error:
        raise SpecError(error.problem, where=where, remedy="a share such as 0.05 or 5 %") from error
    if not 0 <= share < 1:
        raise SpecError(f"{text} is no share", where=where, remedy="0.05 or 5 %")
    return share


def _verdict(
    values: tuple[float | bool, ...], stated: Figure, tolerance: float, where: str
) -> tuple[Verdict, float | None]:
    """How the computed values compare with what is stated, and how far off that is."""
    if stated.is_empty:
        return Verdict.REPRODUCED, None
    first = values[0]
    if isinstance(first, bool) or stated.truth is not None:
        if stated.truth is None or not isinstance(first, bool):
            told = "true or false" if isinstance(first, bool) else "a number"
            raise SpecError(f"the working gives {told}", where=where, remedy=told)
        return (Verdict.REPRODUCED if first == stated.truth else Verdict.WRONG), None
    if agrees(first, stated, tolerance):
        return Verdict.REPRODUCED, None
    off = stated.numbers[0] / first - 1 if first else math.inf
    return Verdict.OFF, off if math.isfinite(off) else None
