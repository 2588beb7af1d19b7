"""What a check has found: right, to be watched, or wrong; and then what that means and mends it."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is. Only what is wrong makes `ridgeline doctor` end with status 1."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """`said` is what was seen; `means` what follows, `remedy` what to type, unless it is right."""

    check: str
    level: Level
    said: str
    means: str = ""
    remedy: str = ""


def right(check: str, said: str) -> Finding:
    """Nothing to do."""
    return Finding(check, Level.OK, said)


def warning(check: str, said: str, means: str, remedy: str) -> Finding:
    """It works, and not as it could."""
    return Finding(check, Level.WARNING, said, means, remedy)


def wrong(check: str, said: str, means: str, remedy: str) -> Finding:
    """Something does not work, or will not."""
    return Finding(check, Level.WRONG, said, means, remedy)
