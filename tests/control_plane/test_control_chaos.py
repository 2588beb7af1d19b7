"""Whatever of the control plane is killed with -9: no orphan, no lost stream, and it recovers.

The short form kills a kind once; the long one (slow) at random, with two gateway workers.
"""

from pathlib import Path
from random import Random

import pytest
from cp_chaos import SPEC, Attack
from cp_up import up


@pytest.mark.parametrize(
    "victim", [pytest.param("loading", marks=pytest.mark.slow), "draining", "controller"]
)
async def test_whatever_is_killed_what_was_wanted_is_there_again(
    victim: str, tmp_path: Path
) -> None:
    async with up(tmp_path, "chaos", SPEC.format(workers=1)) as it:
        attack = Attack(it, seed=6)
        await getattr(attack, victim)()
        await attack.end()
        assert attack.verdict() == {}
        assert attack.kills == [victim]
        assert await it.interrupt() == 0, it.log.read_text()
        assert await it.left_over(1.0) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [61, 62])
async def test_the_same_at_random_with_two_workers(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    victims = ["loading", "draining", "ready", "worker", "controller"]
    plan = [*victims, *chance.choices(victims, k=5)]
    chance.shuffle(plan)
    async with up(tmp_path, "chaos", SPEC.format(workers=2)) as it:
        attack = Attack(it, seed)
        for victim in plan:
            await getattr(attack, victim)()
        await attack.end()
        assert attack.verdict() == {}
        assert attack.kills == plan
        assert await it.interrupt() == 0, it.log.read_text()
        assert await it.left_over(1.0) == []
