"""Oracles that cannot fail prove nothing: what the gateway is robbed of turns one of them red."""

from pathlib import Path

import pytest
from chaos_attack import Plan, attack
from chaos_oracles import findings
from chaos_report import verdict

SEED = 5


async def red(folder: Path, url: str, plan: Plan) -> set[str]:
    """The letters of the oracles that found something."""
    evidence = await attack(folder, url, plan)
    print(verdict(evidence))
    return {name.partition(":")[0] for name in findings(evidence)}


@pytest.mark.slow
async def test_without_kills_nothing_is_red(tmp_path: Path, sqlite_url: str) -> None:
    """The patience that the next tests give is enough where nothing is missing."""
    assert await red(tmp_path, sqlite_url, Plan(SEED, 100, 0, "none", quiet_s=8)) == set()


async def test_a_gateway_that_does_not_settle(tmp_path: Path, sqlite_url: str) -> None:
    plan = Plan(SEED, 100, 0, "no-settle", quiet_s=8)
    assert await red(tmp_path, sqlite_url, plan) >= {"a", "b"}


@pytest.mark.slow
async def test_a_gateway_that_sends_nothing_again(tmp_path: Path, sqlite_url: str) -> None:
    assert await red(tmp_path, sqlite_url, Plan(SEED, 150, 0, "no-retry", quiet_s=8)) == {"g"}


@pytest.mark.slow
async def test_a_gateway_that_charges_every_try(tmp_path: Path, sqlite_url: str) -> None:
    plan = Plan(SEED, 150, 0, "every-try-charged", quiet_s=8)
    assert await red(tmp_path, sqlite_url, plan) == {"a"}


@pytest.mark.slow
async def test_a_gateway_without_turns(tmp_path: Path, sqlite_url: str) -> None:
    assert await red(tmp_path, sqlite_url, Plan(SEED, 200, 0, "no-turns", quiet_s=8)) == {"e"}


@pytest.mark.slow
async def test_a_gateway_whose_leases_never_expire(tmp_path: Path, sqlite_url: str) -> None:
    plan = Plan(SEED, 100, 1, "no-lease-expiry", quiet_s=25)
    assert await red(tmp_path, sqlite_url, plan) >= {"a", "b"}
    plan = Plan(SEED, 100, 1, "none", quiet_s=25)
    folder = tmp_path / "whole"
    folder.mkdir()
    assert await red(folder, f"sqlite:///{folder / 'ledger.db'}", plan) == set()
