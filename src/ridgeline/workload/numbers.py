"""Numbers as files and users write them: what is none, or cannot be meant, is refused."""

from math import isfinite

#: No request has more tokens, and no trace lasts longer (30,000 years).
MOST_TOKENS = 1_000_000_000
MOST_S = 1e12


def number(text: str) -> float | None:
    """A finite number; None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


def tokens(value: object) -> int:
    """A whole number of tokens from a field of a file, also "374" or 374.0; ValueError."""
    found = _plain(value)
    if isinstance(found, str):
        is_short = len(found) < 20 and found.strip().isdecimal()
        found = int(found) if is_short else float(found)
    if not isfinite(found) or found != int(found):
        raise ValueError(f"{_short(value)} is no whole number")
    if not 0 <= found <= MOST_TOKENS:
        raise ValueError(f"{_short(value)} tokens are not between 0 and {MOST_TOKENS:,}")
    return int(found)


def seconds(value: object) -> float:
    """A time from a field of a file; ValueError."""
    found = float(_plain(value))
    if not isfinite(found) or abs(found) > MOST_S:
        raise ValueError(f"{_short(value)} is no time")
    return found


def name(value: object) -> str:
    """A name from a field of a file, "" where there is none; ValueError for what is none."""
    if value is None:
        return ""
    if not isinstance(value, str | int) or len(text := str(value)) > 200:
        raise ValueError(f"{_short(value)} is no name")
    return text


def _plain(value: object) -> float | str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{_short(value)} is no number")
    try:
        float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{_short(value)} is no number") from None
    return value


def _short(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a huge number"
    return text if len(text) <= 40 else f"{text[:40]}…"
