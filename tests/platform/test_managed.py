"""One model without a process: what is ordered of which version, what the gateway hears."""

from pathlib import Path

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform import managed
from ridgeline.platform.managed import START_S, ManagedModel
from ridgeline.serving.control.target import settings_of, target_for
from ridgeline.serving.control.versions import Version
from ridgeline.serving.policy.scale import Step
from ridgeline.spec import parse


class Ordered:
    """Stands in for a Deployment: it does at once what it is told."""

    def __init__(
        self, _launch, _listener, _routing, *, is_ready, failed, drain_s, start_most_s
    ) -> None:
        self.size, self.leaving = 0, 0
        self.failed = failed

    def resize(self, wanted: int) -> None:
        self.size = wanted


class Front:
    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []

    def add_replica(self, address) -> None:
        self.said.append(("add", address.id, address.version))

    async def remove_replica(self, name, grace_s=0.0) -> None:
        self.said.append(("remove", name, grace_s))

    async def expect(self, model, start_s) -> None:
        self.said.append(("expect", model, start_s))


class Heard:
    def __init__(self) -> None:
        self.said_: list[str] = []

    async def said(self, replica, event) -> None:
        self.said_.append(f"{replica} {event['event']}")

    async def died(self, replica, reason) -> None:
        self.said_.append(f"{replica} {reason}")


class World:
    def __init__(self, tmp_path: Path, replicas: str) -> None:
        platform = parse(
            f"models: [{{name: m, engine: {{kind: fake}}, replicas: {replicas}}}]", name="p"
        )
        self.front, self.heard = Front(), Heard()
        self.failures: list[Exception] = []
        self.model = ManagedModel(
            platform,
            platform.models[0],
            tmp_path,
            self.heard,
            lambda: self.front,
            self.failures.append,
        )

    @property
    def deployment(self) -> Ordered:
        made = self.model._deployments[self.model.spec_version.id]
        assert isinstance(made, Ordered)
        return made

    async def becomes_ready(self, replica: str, start_s: float) -> None:
        version = self.model.spec_version.id
        await self.model.listens(version, replica, "http://127.0.0.1:1")
        await self.model.said(version, replica, {"event": "ready", "start_s": start_s})


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(managed, "Deployment", Ordered)
    return lambda replicas: World(tmp_path, replicas)


async def test_a_model_is_announced_and_its_measured_start_too(make) -> None:
    world = make("{min: 0, max: 2}")
    await world.model.announce()
    await world.model.start(world.model.spec_version)
    assert (world.model.size, world.front.said) == (0, [("expect", "m", START_S)])
    await world.becomes_ready("m-0", 3.5)
    version = world.model.spec_version.id
    assert world.front.said[1:] == [("add", "m-0", version), ("expect", "m", 3.5)]
    assert world.heard.said_ == ["m-0 ready"]
    assert world.model.ready(version) == 1


async def test_a_model_that_is_always_there_starts_with_as_many(make) -> None:
    world = make("{min: 2}")
    await world.model.start(world.model.spec_version)
    assert world.model.size == 2


async def test_who_dies_leaves_routing_first(make) -> None:
    world = make("{min: 1}")
    await world.becomes_ready("m-0", 1.0)
    await world.model.died(world.model.spec_version.id, "m-0", "exit status -9")
    assert world.front.said[-1] == ("remove", "m-0", 0.0)
    assert world.heard.said_[-1] == "m-0 exit status -9"
    assert world.model.ready(world.model.spec_version.id) == 0


@pytest.mark.parametrize(("replicas", "ends_it"), [("{min: 1}", True), ("{min: 0, max: 1}", False)])
def test_a_failed_start_ends_only_what_cannot_do_without_it(make, replicas, ends_it) -> None:
    world = make(replicas)
    world.deployment.failed(ValueError("torn"))
    assert bool(world.failures) is ends_it


async def test_after_one_good_start_a_failed_one_ends_nothing(make) -> None:
    world = make("{min: 1, max: 3}")
    await world.becomes_ready("m-0", 1.0)
    world.deployment.failed(ValueError("killed"))
    assert world.failures == []


def test_versions_have_their_shares_of_what_the_demand_needs(make) -> None:
    world = make("{min: 0, max: 10}")
    old = world.model.spec_version
    new = Version(old.model, {**old.engine, "max_seqs": 3})
    world.model.resize(4)
    world.model.runs({old.id: old, new.id: new}, {old.id: 1.0, new.id: 0.3})
    sizes = {name: one.size for name, one in world.model._deployments.items()}
    assert (sizes, world.model.size) == ({old.id: 4, new.id: 2}, 4)
    world.model.resize(0)  # what is tried is there even where nobody asks
    assert [one.size for one in world.model._deployments.values()] == [0, 1]
    world.model.runs({new.id: new}, {new.id: 1.0})
    world.model.resize(2)
    assert [one.size for one in world.model._deployments.values()] == [0, 2]
    assert [one["id"] for one in world.model.shown()["versions"]] == [new.id]


def test_what_the_spec_says_is_what_the_policy_is_told() -> None:
    text = """
models:
  - name: m
    engine: {kind: fake, max_seqs: 10}
    replicas:
      min: 1
      max: 9
      scale: {up: {by: 3, every: 10s}, down: {stabilise: 20s}, zero_after: 30s, spare: 1}
"""
    (model,) = parse(text, name="p").models
    settings = settings_of(model.replicas, target_for(model))
    assert (settings.least, settings.most, settings.spare) == (1, 9, 1)
    assert settings.per_replica == 8  # 80 % of what runs at once in one
    assert settings.up == Step(3, 10.0)
    assert (settings.down_after_s, settings.zero_after_s) == (20.0, 30.0)


def test_what_one_replica_serves_well_and_why_is_shown(make) -> None:
    world = make("{min: 1, slots: 200, scale: {tpot: 50ms, step_times: llama-3.1-70b@4xh100-sxm}}")
    shown = world.model.shown()
    assert shown["per_replica"] == world.model.scaling.settings.per_replica > 1
    assert "llama-3.1-70b@4xh100-sxm" in shown["per_replica_source"]


def test_step_times_of_nothing_are_said_before_anything_starts(make) -> None:
    with pytest.raises(SpecError, match="llama-9"):
        make("{min: 1, scale: {tpot: 50ms, step_times: llama-9@h100-sxm}}")
