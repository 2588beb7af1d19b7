"""Who is there and how busy: exact whatever comes, leaves and comes back while requests run."""

import asyncio
from dataclasses import replace

import pytest

from ridgeline.errors import SpecError
from ridgeline.serving.gateway.config import GatewayConfig, ModelSettings, ReplicaAddress
from ridgeline.serving.gateway.fleet import Fleet
from ridgeline.serving.gateway.live_replica import Wanted
from ridgeline.serving.gateway.prompt_blocks import PromptBlocks
from ridgeline.serving.openai import ApiError
from ridgeline.serving.policy.health import Sign
from ridgeline.serving.policy.split import Split

WANTED = Wanted("m", PromptBlocks((), 0), 10)


def address(name: str) -> ReplicaAddress:
    return ReplicaAddress(name, "http://127.0.0.1:1", "m")


def fleet_of(*names: str, **config) -> Fleet:
    fleet = Fleet(GatewayConfig(port=0, **config))
    for name in names:
        fleet.add(address(name))
    for replica in fleet.replicas:
        fleet.saw(replica, Sign.FIRST_TOKEN)
    return fleet


def test_slots_are_a_workers_share_and_rounded_up() -> None:
    settings = {"*": ModelSettings(slots=5)}
    assert fleet_of("a", "b", models=settings).slots("m") == 10
    assert fleet_of("a", "b", models=settings, workers=2).slots("m") == 2 * 3
    assert fleet_of("a", models={"*": ModelSettings(slots=1)}, workers=4).slots("m") == 1
    assert fleet_of("a").slots("other") == 0


def test_an_id_is_taken_until_it_has_left() -> None:
    with pytest.raises(SpecError, match="already"):
        fleet_of("a").add(address("a"))


async def test_a_request_outlives_its_replicas_removal_and_return() -> None:
    fleet = fleet_of("a")
    old = fleet.choose(WANTED, frozenset())
    assert old is not None
    await fleet.remove("a", 0)
    assert [one.id for one in fleet.addresses("m")] == ["a"]  # still asked what it did
    fleet.add(address("a"))
    (new,) = fleet.replicas
    fleet.saw(new, Sign.FIRST_TOKEN)
    fresh = fleet.choose(WANTED, frozenset())
    assert fresh is not None
    old.close()  # counts nothing off at the replica that has its name now
    assert (new.view.running, new.idle.is_set()) == (1, False)
    fresh.close()
    assert (new.view.running, new.idle.is_set()) == (0, True)


async def test_removal_waits_for_what_runs() -> None:
    fleet = fleet_of("a")
    dispatch = fleet.choose(WANTED, frozenset())
    assert dispatch is not None
    removing = asyncio.create_task(fleet.remove("a", 60))
    await asyncio.sleep(0)
    with pytest.raises(ApiError, match="not ready"):
        fleet.choose(WANTED, frozenset())
    assert not removing.done()
    dispatch.close()
    await removing
    assert fleet.replicas == []


async def test_who_waits_for_a_replica_is_woken_by_it_or_told_503() -> None:
    fleet = fleet_of("a", hold_s=0.05)
    fleet.saw(fleet.replicas[0], Sign.NOT_READY)
    waiting = [asyncio.create_task(fleet.until_served("m")) for _ in range(3)]
    await asyncio.sleep(0)
    fleet.saw(fleet.replicas[0], Sign.FIRST_TOKEN)
    await asyncio.gather(*waiting)
    fleet.saw(fleet.replicas[0], Sign.NOT_READY)
    with pytest.raises(ApiError) as error:
        await fleet.until_served("m")
    assert error.value.status == 503


async def test_a_model_that_vanished_meanwhile_names_no_others() -> None:
    fleet = fleet_of("a")
    fleet.replicas[0].view.models = frozenset({"secret"})
    with pytest.raises(ApiError) as error:
        fleet.choose(WANTED, frozenset())
    assert (error.value.status, "secret" in error.value.message) == (503, False)


async def test_replicas_that_left_are_remembered_up_to_a_number() -> None:
    fleet = fleet_of()
    for number in range(100):
        fleet.add(address(f"r{number}"))
        await fleet.remove(f"r{number}", 0)
    assert [one.id for one in fleet.addresses("m")] == [f"r{n}" for n in range(36, 100)]


# Models that start when they are asked for, and models of two versions.


async def test_requests_for_a_model_that_sleeps_are_held_and_seen() -> None:
    fleet = fleet_of()
    assert not fleet.knows("m")
    fleet.expect("m", 30.0)
    assert fleet.knows("m")
    assert [one["id"] for one in fleet.models()] == ["m"]
    waiting = [asyncio.create_task(fleet.until_served("m")) for _ in range(3)]
    await asyncio.sleep(0)
    assert fleet.held == {"m": 3}
    fleet.add(address("a"))
    fleet.saw(fleet.replicas[0], Sign.FIRST_TOKEN)
    await asyncio.gather(*waiting)
    assert fleet.held == {}
    assert len(fleet.models()) == 1
    fleet.expect("m", None)
    await fleet.remove("a", 0)
    assert not fleet.knows("m")


async def test_who_cannot_be_held_hears_how_long_a_start_takes() -> None:
    fleet = fleet_of(most_held=1, hold_s=0.01)
    fleet.expect("m", 40.2)
    held = asyncio.create_task(fleet.until_served("m"))
    await asyncio.sleep(0)
    with pytest.raises(ApiError) as error:
        await fleet.until_served("m")
    assert (error.value.status, error.value.headers["Retry-After"]) == (503, "41")
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    assert fleet.held == {}  # a client that leaves is held no longer
    fleet.expect("m", 0.001)
    with pytest.raises(ApiError, match="became ready"):
        await fleet.until_served("m")


async def test_callers_keep_their_version_and_get_the_other_rather_than_none() -> None:
    fleet = fleet_of()
    for name, version in (("a", "v1"), ("b", "v2")):
        fleet.add(replace(address(name), version=version))
    old, new = fleet.replicas
    for replica in (old, new):
        fleet.saw(replica, Sign.FIRST_TOKEN)
    fleet.set_split("m", Split("r", "v1", "v2", 0.3))
    chosen: dict[str, set[str]] = {}
    for number in range(300):
        caller = f"caller {number % 100}"
        dispatch = fleet.choose(replace(WANTED, caller=caller), frozenset())
        assert dispatch is not None
        chosen.setdefault(caller, set()).add(dispatch.replica.address.version)
        dispatch.close()
    assert all(len(versions) == 1 for versions in chosen.values())
    assert 15 <= sum(versions == {"v2"} for versions in chosen.values()) <= 45
    fleet.set_split("m", Split("r", "v1", "v2", 0.0))  # back: one change, and all are there
    for number in range(100):
        dispatch = fleet.choose(replace(WANTED, caller=f"caller {number}"), frozenset())
        assert dispatch is not None
        assert dispatch.replica is old
        dispatch.close()
    dispatch = fleet.choose(WANTED, frozenset({"a"}))  # its own version has failed it
    assert dispatch is not None
    assert dispatch.replica is new
    fleet.saw(old, Sign.NOT_READY)
    dispatch = fleet.choose(WANTED, frozenset())
    assert dispatch is not None
    assert dispatch.replica is new
