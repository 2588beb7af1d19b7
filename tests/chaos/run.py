"""`make chaos`: the whole form, 2,000 requests, twelve blows; 1 where an oracle is red.

python tests/chaos/run.py [--seed N] [--requests N] [--kills N]
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from chaos_attack import Plan, attack
from chaos_report import summary, verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=12)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ridgeline-chaos-") as name:
        folder = Path(name)
        plan = Plan(told.seed, told.requests, told.kills)
        evidence = asyncio.run(attack(folder, f"sqlite:///{folder / 'ledger.db'}", plan))
    print(summary(evidence))
    problems = verdict(evidence)
    print(problems, file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main())
