"""Money, streams and turns where gateway workers and replicas are killed with -9: the short form.

The whole form is `make chaos`.
"""

from collections import Counter
from pathlib import Path

from chaos_attack import Evidence, Plan, attack
from chaos_report import summary, verdict

SEED = 5


async def test_whatever_is_killed_every_oracle_holds(tmp_path: Path, sqlite_url: str) -> None:
    evidence = await attack(tmp_path, sqlite_url, Plan(SEED, requests=300, kills=3))
    print(summary(evidence))
    assert verdict(evidence) == ""
    _saw_enough(evidence)


async def test_the_same_with_postgresql(tmp_path: Path, postgres_url: str) -> None:
    evidence = await attack(tmp_path, postgres_url, Plan(SEED + 1, requests=150, kills=3))
    print(summary(evidence))
    assert verdict(evidence) == ""


def _saw_enough(evidence: Evidence) -> None:
    """Oracles that looked at nothing would be green too."""
    ends = Counter(one.end for one in evidence.asked)
    assert ends.keys() >= {"answered", "done", "left", "refused", "broken"}, ends
    assert {row.basis for row in evidence.entries} >= {"usage", "replica log"}
    assert len(evidence.deaths) == evidence.plan.kills + 1  # one worker with a replica
    assert len(evidence.logs) > evidence.plan.requests // 3
    assert len(evidence.samples) > 5
    assert any(detail["retries"] for detail in evidence.decisions.values())
