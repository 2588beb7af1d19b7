"""Small platforms and traffic for tests of the simulator."""

from dataclasses import replace

from hypothesis import strategies as st

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.acceptance_alarm import Expected
from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.policy.rolling import Rolling
from ridgeline.serving.policy.rollout import Plan
from ridgeline.serving.policy.route import RULES
from ridgeline.serving.policy.scale import Settings, Step
from ridgeline.serving.simulate.adapters import Adapters
from ridgeline.serving.simulate.clients import ClosedLoop, Manners, OpenLoop
from ridgeline.serving.simulate.guesses import Guessing
from ridgeline.serving.simulate.setup import (
    Change,
    Engine,
    Fault,
    Gateway,
    Link,
    Model,
    Place,
    Region,
    Role,
    Scaling,
    Serving,
    Spot,
    Tenant,
    Trouble,
)
from ridgeline.serving.simulate.tiers import Tier, Tiers
from ridgeline.workload import Request

MACHINE = Machine(Plain(0.01, 0.0001, 20_000.0), 40_000)


def engine(**changes) -> Engine:
    """A small fast engine."""
    return Engine(changes.pop("machine", MACHINE), **{"max_seqs": 8, **changes})


def model(name: str = "chat", **changes) -> Model:
    """One model on it."""
    return Model(name, changes.pop("engine", engine()), **changes)


@st.composite
def engines(draw) -> Engine:
    """Engines that are short of blocks, seats or tokens."""
    steps = Plain(draw(st.floats(0.001, 0.05)), draw(st.floats(0, 0.001)), 5_000.0)
    return Engine(
        Machine(steps, draw(st.integers(20, 120)) * 16, 100.0),
        max_seqs=draw(st.integers(1, 6)),
        max_batched_tokens=draw(st.sampled_from([8, 64, 512])),
        arrive_s=draw(st.sampled_from([0.0, 0.003])),
        deliver_s=draw(st.sampled_from([0.0, 0.002])),
        resumes=draw(st.booleans()),
        ahead=draw(st.booleans()),
        guessing=draw(st.one_of(st.none(), st.none(), guessings())),
        **{
            "prefix_caching": draw(st.booleans()),
            **draw(st.one_of(st.just({}), st.just({}), loads())),
        },
    )


@st.composite
def guessings(draw) -> Guessing:
    """Engines that guess, whatever it brings."""
    rule = draw(st.sampled_from(["measured", "always"]))
    return Guessing(
        draw(st.sampled_from([0.0, 0.6, 1.0, {"": 0.3, "small": 0.9, "sql": 0.5}])),
        draw(st.integers(1, 5)),
        draw(st.sampled_from([0.0, 0.05])),
        rule,
        draw(st.integers(0, 4)) if rule == "always" else 0,
        draw(st.sampled_from([None, Expected(0.7, false_once_in=100.0)])),
    )


@st.composite
def loads(draw) -> dict:
    """Something that has to be loaded: adapters, or what left the cache; or both."""
    found = {}
    if draw(st.booleans()):
        shares = {"sql": 0.4, "code": 0.3, "law": 0.1}
        found["adapters"] = Adapters(shares, draw(st.integers(1, 3)), 0.2, 0.001)
    if not found or draw(st.booleans()):
        found["prefix_caching"] = True
        tiers = Tier("host", draw(st.sampled_from([1e3, 1e5])), 1e6), Tier("disk", 1e5, 1e5, 0.001)
        rule = draw(st.sampled_from(["quicker", "load", "recompute"]))
        found["tiers"] = Tiers(tiers[: draw(st.integers(1, 2))], rule)
    return found


@st.composite
def servings(draw) -> Serving:
    """Whole platforms: rules, limits, scaling, faults."""
    most = draw(st.integers(1, 4))
    settings_ = Settings(
        least=draw(st.integers(0, 1)),
        most=most,
        per_replica=draw(st.sampled_from([1.0, 4.0])),
        up=Step(draw(st.integers(1, 3)), 10.0),
        down_after_s=draw(st.sampled_from([1.0, 20.0])),
        zero_after_s=5.0,
    )
    one = Model(
        "chat",
        draw(engines()),
        draw(st.integers(1, most)),
        draw(st.sampled_from([None, Scaling(settings_)])),
        {"start": draw(st.sampled_from([0.0, 3.0]))},
        draw(st.sampled_from(sorted(RULES))),
        slots=draw(st.integers(1, 8)),
        place=Place("eu"),
        drain_s=draw(st.sampled_from([1.0, 600.0])),
    )
    tenants = (Tenant("small", limits=Limits(requests_per_minute=draw(st.integers(1, 50)))),)
    kinds = [one, *draw(st.lists(others(one), max_size=2))]
    kinds = [replace(kind, name=f"chat{n}" if n else "chat") for n, kind in enumerate(kinds)]
    changes = ()
    if one.scaling is None and draw(st.booleans()):
        new = replace(draw(others(one)), name="next", replicas=0, scaling=None)
        kinds = [one, replace(new, role=Role.BOTH, link=None)]
        how = draw(st.sampled_from([Plan((0.5,), 5.0, 3.0), Rolling(deadline_s=5.0)]))
        changes = (
            Change(draw(st.floats(0, 5)), "chat", "next", how, is_alike=draw(st.booleans())),
        )
    faults = tuple(draw(st.lists(troubles([kind.name for kind in kinds]), max_size=3)))
    gateway = Gateway(workers=draw(st.integers(1, 2)), hold_s=2.0)
    return Serving(
        tuple(kinds),
        (*tenants, Tenant("bound", home="us", residency=frozenset({"us"}))),
        gateway,
        faults,
        draw(st.integers(0, 3)),
        pools={"gpus": draw(st.integers(1, 8))},
        regions=(Region("eu", {"us": 0.08}), Region("us")),
        changes=changes,
    )


@st.composite
def others(draw, one: Model) -> Model:
    """Another kind of replicas for the same name: elsewhere, of other machines, or on loan."""
    engine = replace(draw(engines()), adapters=one.engine.adapters)
    place = Place(
        draw(st.sampled_from(["eu", "us"])),
        draw(st.sampled_from(["", "gpus"])),
        draw(st.integers(1, 2)),
        draw(st.sampled_from([None, Spot(600.0, 1.0), Spot(100.0, 0.0)])),
    )
    role = draw(st.sampled_from(Role))
    return replace(
        one,
        engine=engine,
        serves="chat",
        place=place,
        replicas=draw(st.integers(0, 3)),
        role=role,
        link=draw(st.sampled_from([None, Link(1e9, 0.001)])) if role is Role.PREFILL else None,
        apart_tokens=draw(st.sampled_from([0, 100])),
    )


@st.composite
def troubles(draw, names: list[str]) -> Fault:
    """Anything that can go wrong."""
    return Fault(
        draw(st.floats(0, 10)),
        draw(st.sampled_from(Trouble)),
        draw(st.sampled_from(names)),
        draw(st.integers(0, 3)),
        draw(st.floats(0, 5)),
        draw(st.floats(0.5, 4)),
        draw(st.sampled_from(["eu", "us"])),
    )


@st.composite
def traffic(draw) -> list[Request]:
    """Requests, some of which begin alike; times come in bursts."""
    requests, at_s = [], 0.0
    for number in range(draw(st.integers(1, 40))):
        at_s += draw(st.sampled_from([0.0, 0.0, 0.01, 0.3, 2.0]))
        prompt = draw(st.integers(1, 300))
        shared = draw(st.integers(0, 3))
        blocks = tuple(
            (shared if place < 6 else 1000 + number) * 1000 + place for place in range(prompt // 16)
        )
        tenant = draw(st.sampled_from(["", "small", "bound"]))
        requests.append(Request(at_s, prompt, draw(st.integers(1, 60)), blocks, tenant))
    return requests


@st.composite
def manners(draw) -> Manners:
    """Clients who wait for ever, leave early, or come again."""
    patience = st.sampled_from([None, None, 0.2, 3.0])
    retries, first_token_s, whole_s = draw(st.integers(0, 2)), draw(patience), draw(patience)
    may = retries > 0 and (first_token_s is not None or whole_s is not None)
    return Manners(retries, first_token_s, whole_s, again=may and draw(st.booleans()))


@st.composite
def clients(draw):
    """Makes clients anew for each run."""
    requests, how = draw(traffic()), draw(manners())
    count = draw(st.integers(1, 5))
    if draw(st.booleans()):
        return lambda: OpenLoop(requests, "chat", block_tokens=16, manners=how)
    return lambda: ClosedLoop(requests, "chat", count, block_tokens=16, think_s=0.1, manners=how)
