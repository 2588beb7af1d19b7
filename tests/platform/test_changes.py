"""A diff of two specs: its laws, and a sentence for each kind of change."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.platform.changes import Change, How, applied, as_it_runs, diff
from ridgeline.serving.control.versions import version_of
from ridgeline.spec import Platform, parse


def spec(**parts: Any) -> Platform:
    return Platform.model_validate({"name": "p", "models": [fake()], **parts})


def fake(name: str = "chat", **parts: Any) -> dict[str, Any]:
    return {"name": name, "engine": {"kind": "fake"}, **parts}


def only(was: Platform, now: Platform) -> Change:
    (change,) = diff(was, now, spec="p.yaml")
    return change


def by_name(platform: Platform) -> dict[str, Any]:
    told = platform.model_dump()
    for key in ("models", "tenants"):
        told[key] = {one["name"]: one for one in told[key]}
    return told


names = st.sampled_from(["a", "b", "c", "d"])
seconds = st.sampled_from(["10s", "1m", "500ms"])
engines = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("fake"), "step": seconds, "max_seqs": st.integers(1, 9)},
        optional={"faults": st.lists(st.sampled_from(["slow", "mute"]), max_size=2)},
    ),
    st.fixed_dictionaries(
        {"kind": st.just("ridgeline"), "kv_cache": st.sampled_from(["1GB", "2GiB"])},
        optional={"dtype": st.sampled_from(["bf16", "int8"]), "speculation": st.just("ngram")},
    ),
    st.fixed_dictionaries(
        {"kind": st.just("url"), "urls": st.lists(
            st.sampled_from(["http://x:1", "http://y:2", "https://z"]), min_size=1, max_size=3)},
        optional={"api_key_env": st.sampled_from(["K1", "K2"])},
    ),
)  # fmt: skip


@st.composite
def models(draw: st.DrawFn) -> dict[str, Any]:
    engine = draw(engines)
    model: dict[str, Any] = {"name": draw(names), "engine": engine}
    replicas: dict[str, Any] = {"min": draw(st.integers(1, 3))}
    if engine["kind"] == "ridgeline":
        model["model"] = draw(st.sampled_from(["w1", "w2"]))
    if engine["kind"] != "url" and draw(st.booleans()):
        replicas["max"] = 4
        replicas["scale"] = {"up": {"by": draw(st.integers(1, 3)), "every": draw(seconds)}}
        replicas["scale"]["cron"] = draw(st.sampled_from([[], [{"at": "0 8 * * *", "min": 2}]]))
    model["replicas"] = replicas
    model["price"] = {"input": draw(st.sampled_from(["0", "1.5"]))}
    model["routing"] = {"policy": draw(st.sampled_from(["least-load", "session"]))}
    return model


tenants = st.fixed_dictionaries(
    {"name": names, "weight": st.sampled_from([1, 2.5])},
    optional={
        "limits": st.fixed_dictionaries({"concurrent": st.integers(1, 9)}),
        "budget": st.fixed_dictionaries({"usd": st.sampled_from(["5", "0.25"])}),
        "class": st.sampled_from(["bulk", "interactive"]),
    },
)


@st.composite
def platforms(draw: st.DrawFn) -> Platform:
    def unique(parts: st.SearchStrategy[Any], least: int) -> Any:
        return st.lists(parts, min_size=least, max_size=4, unique_by=lambda one: one["name"])

    return Platform.model_validate(
        {
            "name": draw(names),
            "models": draw(unique(models(), 1)),
            "tenants": draw(unique(tenants, 0)),
            "gateway": {"workers": draw(st.integers(1, 2))},
        }
    )


@given(platforms())
def test_nothing_differs_from_itself(platform):
    assert diff(platform, platform) == []


@given(platforms(), st.randoms(use_true_random=False))
def test_order_in_the_file_means_nothing(platform, chance):
    shuffled = list(platform.models)
    chance.shuffle(shuffled)
    assert diff(platform, platform.model_copy(update={"models": shuffled})) == []


@settings(max_examples=200)
@given(platforms(), platforms())
def test_the_changes_applied_say_the_same_as_the_new_one(was, now):
    changes = diff(was, now)
    after = applied(was, changes)
    assert by_name(after) == by_name(now)
    assert diff(after, now) == []


@given(platforms(), platforms())
def test_each_change_has_a_sentence_of_its_own_and_a_remedy_where_it_is_refused(was, now):
    changes = diff(was, now)
    assert len({change.path for change in changes}) == len(changes)
    for change in changes:
        assert change.said
        assert bool(change.remedy) == change.is_refused
        assert change.was != change.now


@given(platforms(), platforms())
def test_whatever_reaches_a_tenant_is_in_place(was, now):
    hows = {change.how for change in diff(was, now) if change.path[0] == "tenants"}
    assert hows <= {How.IN_PLACE}


def test_a_model_that_came_starts_and_one_that_went_drains():
    now = spec(models=[fake("embed", replicas={"min": 2, "max": 4})])
    drains, starts = diff(spec(), now)
    assert (drains.where, drains.how) == ("models[chat]", How.DRAINS)
    assert drains.said == "chat drains: running answers finish, then it is gone"
    assert (starts.where, starts.how) == ("models[embed]", How.STARTS)
    assert starts.said == "embed starts with 2 replicas, up to 4"


def test_servers_that_run_already_join():
    url = {"name": "big", "engine": {"kind": "url", "urls": ["http://x:1", "http://y:1"]}}
    change = only(spec(), spec(models=[fake(), url]))
    assert change.said == "big joins, 2 servers that run already"


@pytest.mark.parametrize(
    ("part", "where", "said"),
    [
        (
            {"replicas": {"max": 4}},
            "models[chat].replicas.max",
            "chat: replicas.max none becomes 4, at the autoscaler's next look",
        ),
        (
            {"replicas": {"slots": 8}},
            "models[chat].replicas.slots",
            "chat: replicas.slots none becomes 8, for requests from now on",
        ),
        (
            {"routing": {"policy": "least-load"}},
            "models[chat].routing.policy",
            "chat: routing.policy prefix-sticky becomes least-load, for the next request",
        ),
        (
            {"price": {"output": "0.60"}},
            "models[chat].price.output",
            "chat: price.output 0 becomes 0.60, for answers that end from now on",
        ),
        (
            {"max_output_tokens": 100},
            "models[chat].max_output_tokens",
            "chat: max_output_tokens none becomes 100, for requests from now on",
        ),
    ],
)
def test_what_requests_meet_changes_in_place(part, where, said):
    change = only(spec(), spec(models=[fake(**part)]))
    assert (change.where, change.how, change.said) == (where, How.IN_PLACE, said)


def test_another_version_is_refused_with_one_rollout_for_all_of_it():
    was = parse("models: [{name: chat, model: w1}]", name="p")
    now = parse(
        "models: [{name: chat, model: w2, engine: {dtype: int8, prefix_caching: false}}]", name="p"
    )
    changes = diff(was, now, spec="p.yaml")
    assert [change.where for change in changes] == [
        "models[chat].model",
        "models[chat].engine.dtype",
        "models[chat].engine.prefix_caching",
    ]
    assert {change.how for change in changes} == {How.ROLLOUT}
    assert {change.remedy for change in changes} == {
        "put the old version back into p.yaml, then: ridgeline rollout start chat p.yaml "
        "--to w2 --engine dtype=int8 --engine prefix_caching=false"
    }


def test_another_kind_of_engine_and_the_gateway_need_a_restart():
    url = {"name": "chat", "engine": {"kind": "url", "urls": ["http://x:1"]}}
    assert only(spec(), spec(models=[url])).how is How.RESTART
    change = only(spec(), spec(gateway={"workers": 4}))
    assert (change.where, change.how) == ("gateway.workers", How.RESTART)
    assert change.remedy == "ridgeline down, then ridgeline up p.yaml"
    assert only(spec(), spec(name="q")).how is How.RESTART


def test_servers_come_and_go_in_place():
    def served(*urls: str) -> Platform:
        return spec(models=[{"name": "big", "engine": {"kind": "url", "urls": list(urls)}}])

    change = only(served("http://x:1", "http://y:1"), served("http://y:1", "http://z:1"))
    assert change.how is How.IN_PLACE
    assert change.said == "big: http://z:1 joins; http://x:1 drains"


def test_tenants_change_within_a_second():
    was = spec(tenants=[{"name": "search", "limits": {"concurrent": 4}}, {"name": "old"}])
    now = spec(tenants=[{"name": "search", "limits": {"concurrent": 8}}, {"name": "new"}])
    said = [change.said for change in diff(was, now)]
    assert said == [
        "search: limits.concurrent 4 becomes 8, for its requests within a second",
        "old is disabled: its keys are refused within a second, its usage is kept",
        "new may ask, once it has a key: ridgeline keys create new SPEC",
    ]


def test_a_budget_that_came_is_one_change():
    now = spec(tenants=[{"name": "s", "budget": {"usd": 5}}])
    change = only(spec(tenants=[{"name": "s"}]), now)
    assert change.where == "tenants[s].budget"


def rolled_out() -> tuple[Platform, Platform, Platform]:
    """As its file says; the file with the version that a rollout has brought; with a third one."""
    first, second, third = (
        spec(models=[fake(engine={"kind": "fake", "max_seqs": count})]) for count in (1, 2, 3)
    )
    return first, second, third


def test_a_file_that_has_caught_up_with_a_rollout_changes_nothing():
    written, caught_up, _ = rolled_out()
    live = {"chat": version_of(caught_up.models[0])}
    assert diff(as_it_runs(written, caught_up, live), caught_up) == []


def test_a_file_that_has_not_caught_up_with_a_rollout_does_not_take_it_back():
    written, rolled, _ = rolled_out()
    live = {"chat": version_of(rolled.models[0])}
    assert diff(as_it_runs(written, written, live), written) == []


def test_a_third_version_is_refused():
    written, rolled, third = rolled_out()
    live = {"chat": version_of(rolled.models[0])}
    (change,) = diff(as_it_runs(written, third, live), third)
    assert change.how is How.ROLLOUT


def test_a_change_is_told_as_plain_values():
    told = only(spec(), spec(models=[fake(replicas={"max": 4})])).told()
    assert told["where"] == "models[chat].replicas.max"
    assert (told["was"], told["now"], told["how"]) == (None, 4, "in place")
