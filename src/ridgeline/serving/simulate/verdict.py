"""What a comparison says in words: on what the other platform is better, by how much, at what cost.

Only differences that are more than chance are named, each by the outermost percentile that differs.
Times of a run that was not in balance are not compared: they say how long it was.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ridgeline.serving.simulate.intervals import Interval
from ridgeline.serving.simulate.study import Compared


@dataclass(frozen=True, slots=True)
class _Family:
    """Figures that say the same thing; the first that differs speaks for all of them."""

    name: str
    figures: tuple[str, ...]
    more_is_better: bool = False
    is_time: bool = False


def _times(name: str) -> tuple[str, ...]:
    return tuple(f"{name} {one} (s)" for one in ("p99", "p90", "p50"))


_FAMILIES = (
    _Family("the share within the SLO", ("within the SLO (share)",), more_is_better=True),
    _Family("TTFT", _times("TTFT"), is_time=True),
    _Family("TPOT", _times("TPOT"), is_time=True),
    _Family("whole answers", _times("whole"), is_time=True),
    _Family("answered requests", ("answered (share)",), more_is_better=True),
)  # fmt: skip
_COSTS = ("cost ($)", "replica-hours")
#: A difference that nobody would act on.
_LEAST = 0.001


def verdict(
    names: tuple[str, str], rows: Sequence[Compared], place: int, steady: tuple[bool, bool]
) -> str:
    """Of the platform at a `place` among the differences, against the first one.

    `steady` says whether each was in balance under every seed.
    """
    first, other = names
    by_name = {row.name: row for row in rows}
    better: list[str] = []
    worse: list[str] = []
    alike = 0
    for family in _FAMILIES:
        if family.is_time and not all(steady):
            continue
        there = [by_name[name] for name in family.figures if name in by_name]
        row = next((one for one in there if _differs(one, place)), None)
        if row is None:
            alike += bool(there)
            continue
        is_more = row.differences[place].mean > 0
        said = f"{_called(family, row)} by {_amount(row, place)}"
        (better if is_more is family.more_is_better else worse).append(said)
    told = list(_clauses(other, first, better, worse))
    if alike and told:
        told.append("the rest does not differ")
    elif not told:
        told.append(f"{other} does not differ from {first} by more than chance")
    told += _costs(by_name, place)
    return f"{_balance(names, steady)}{', '.join(told)}"


def _clauses(other: str, first: str, better: list[str], worse: list[str]) -> Iterator[str]:
    if better:
        yield f"{other} is better than {first} on {_and(better)}"
    if worse:
        yield f"{'worse' if better else f'{other} is worse than {first}'} on {_and(worse)}"


def _balance(names: tuple[str, str], steady: tuple[bool, bool]) -> str:
    lost = [name for name, is_steady in zip(names, steady, strict=True) if not is_steady]
    if not lost:
        return ""
    if len(lost) == 1:
        kept = names[1] if lost[0] == names[0] else names[0]
        return (
            f"{kept} keeps up with this traffic and {lost[0]} does not, so times are not compared; "
        )
    return "neither keeps up with this traffic, so times are not compared; "


def _differs(row: Compared, place: int) -> bool:
    gap, before = row.differences[place], row.values[0].mean
    return gap.is_apart() and abs(gap.mean) > _LEAST * abs(before)


def _called(family: _Family, row: Compared) -> str:
    if not family.is_time:
        return family.name
    return f"{family.name} {row.name.split()[1]}"


def _amount(row: Compared, place: int) -> str:
    """A share in points, a time in percent of the first one's."""
    gap, before = row.differences[place], row.values[0].mean
    if "share" in row.name:
        return f"{abs(gap.mean) * 100:.2g} points{_ends(gap, 100, '')}"
    if not before:
        return f"{abs(gap.mean):.3g} s{_ends(gap, 1, ' s')}"
    return f"{abs(gap.mean) / before * 100:.2g} %{_ends(gap, 100 / before, ' %')}"


def _ends(gap: Interval, times: float, unit: str) -> str:
    ends = sorted((abs(gap.low) * times, abs(gap.high) * times))
    return f" (95 % interval {ends[0]:.2g} to {ends[1]:.2g}{unit})"


def _costs(by_name: dict[str, Compared], place: int) -> list[str]:
    for name in _COSTS:
        row = by_name.get(name)
        if row is None or not row.values[0].mean:
            continue
        gap, before = row.differences[place], row.values[0].mean
        is_chance = gap.half is not None and not gap.is_apart()
        if is_chance or abs(gap.mean) <= _LEAST * before:
            return ["it costs the same"]
        word = "more" if gap.mean > 0 else "less"
        return [f"it costs {abs(gap.mean) / before * 100:.2g} % {word}"]
    return []


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
