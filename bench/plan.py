"""How long a person waits for a number: one topic answered, and a thousand points of a sweep.

    python bench/plan.py [--rounds 9] [--quick] [--json]

Targets: one topic in 0.5 s from the shell, start-up included; a sweep of 1,000 points over arrays
beside the same points asked one by one, in the same process and in the same round.
"""

import argparse
import subprocess
import sys
import time

from ridgeline.platform.plan import topics
from ridgeline.working.sweep import Sweep, sweep
from rows import Better, Record, Row, add_options, compared, report

ANSWER_MOST_S = 0.5
TOPIC = "users-per-node"
POINTS = 1000
#: Searches and simulations aside, a sweep over arrays has to pay for itself many times.
LEAST_GAIN = 10.0


def answer_s(*options: str) -> float:
    """`ridgeline plan TOPIC` as a process."""
    began_s = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "ridgeline", "plan", TOPIC, *options],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - began_s


def sweep_s(points: int, *, at_once: bool) -> tuple[float, Sweep]:
    """A sweep of so many points, and how long it took."""
    began_s = time.perf_counter()
    found = sweep(TOPIC, f"memory_bytes=40:160GB:{120 / (points - 1)!r}GB", at_once=at_once)
    assert len(found.points) in (points, points + 1), len(found.points)
    assert found.is_vectorised is at_once
    return time.perf_counter() - began_s, found


def measured(rounds: int, points: int) -> list[Row]:
    """All rows; ours and peer in turn in each round."""
    topics()
    answers = [answer_s() for _ in range(rounds)]
    trees = [answer_s("--why") for _ in range(rounds)]
    pairs = [[sweep_s(points, at_once=one)[0] for one in (True, False)] for _ in range(rounds)]
    at_once, alone = ([points / pair[i] for pair in pairs] for i in (0, 1))
    limit = [ANSWER_MOST_S] * rounds
    return [
        compared("one topic, from the shell", "s", answers, limit, target=1.0, better=Better.LESS),
        compared("the same with --why", "s", trees, limit, target=1.0, better=Better.LESS),
        compared(
            f"sweep of {points:,}, arrays beside one by one",
            "points/s",
            at_once,
            alone,
            target=LEAST_GAIN,
        ),
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    rounds = 3 if options.quick else options.rounds
    rows = measured(rounds, POINTS)
    notes = [f"topic: {TOPIC}; peer: the limit of {ANSWER_MOST_S} s, or the same points in a loop"]
    sys.exit(report(Record("plan", rows, options.quick, notes), as_json=options.json, peer="peer"))


if __name__ == "__main__":
    main()
