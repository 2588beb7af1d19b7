"""When a replica that died is started again."""

from dataclasses import dataclass

#: A replica that lived this long was healthy: its death counts as the first.
HEALTHY_AFTER_S = 60.0
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 60.0


@dataclass(frozen=True, slots=True)
class Restart:
    """Start again after `delay_s`; `deaths` is the count in a row, to be handed in next time."""

    delay_s: float
    deaths: int
    reason: str


def restart(deaths: int, lived_s: float) -> Restart:
    """Doubling back-off, so that a replica which dies at start does not burn the machine.

    `deaths` is the count in a row before this death, `lived_s` how long it ran this time.
    """
    count = 1 if lived_s >= HEALTHY_AFTER_S else deaths + 1
    # The exponent is capped before the power, which would overflow for a count of thousands.
    delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(count - 1, 16))
    return Restart(delay_s, count, f"death {count} in a row after {lived_s:.0f} s: {delay_s:.0f} s")
