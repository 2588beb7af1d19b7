"""`ridgeline rollout`: what is asked for, and what is shown of it."""

import json

import pytest
from click.testing import CliRunner

from ridgeline.cli import ridgeline_command
from ridgeline.errors import RidgelineError
from ridgeline.serving.control.rollout_log import RolloutLog
from ridgeline.serving.control.versions import version_of
from ridgeline.serving.policy.rollout import Phase, Rollout
from ridgeline.spec import load
from ridgeline.store.database import open_store

SPEC = """
models:
  - {name: chat, engine: {kind: fake, step: 10ms}}
  - {name: far, engine: {kind: url, urls: ["http://127.0.0.1:1"]}}
"""


@pytest.fixture
def place(tmp_path):
    """A spec and its database's URL."""
    (tmp_path / "p.yaml").write_text(f"{SPEC}\ngateway: {{database: 'sqlite:///{tmp_path}/l.db'}}")
    store = open_store(f"sqlite:///{tmp_path}/l.db")
    yield tmp_path / "p.yaml", store
    store.dispose()


def run(*words):
    return CliRunner().invoke(ridgeline_command, ["rollout", *map(str, words)])


def told(*words) -> str:
    problem = run(*words).exception
    assert isinstance(problem, RidgelineError), problem
    return str(problem)


def test_it_says_beforehand_how_many_requests_it_takes(place) -> None:
    spec, store = place
    output = run("start", "chat", spec, "--engine", "step=20ms", "--steps", "10%,0.5").output
    assert "10% of requests   about 4" in output
    assert "50% of requests   about 729" in output
    (kept,) = RolloutLog(store).going_on()
    assert kept.plan.steps == (0.1, 0.5)
    assert kept.plan.keep_s == 600
    assert kept.criteria.effect == 1.2
    assert kept.old == version_of(load(spec).models[0])
    assert (kept.old.engine["step"], kept.new.engine["step"]) == ("0.01s", "0.02s")


def test_what_cannot_be_meant_is_refused_before_anything_is_written(place) -> None:
    spec, store = place
    assert "'step' (nearest)" in told("start", "chat", spec, "--engine", "stepp=20ms")
    assert "'fast' is not a duration" in told("start", "chat", spec, "--engine", "step=fast")
    assert "is not KEY=VALUE" in told("start", "chat", spec, "--engine", "step")
    assert "'0' is no share" in told("start", "chat", spec, "--steps", "0")
    assert "'5' is no share" in told("start", "chat", spec, "--steps", "5%,5")
    assert "--keep" in told("start", "chat", spec, "--keep", "ten")
    assert "one of: chat" in told("start", "far", spec)
    assert "has that version already" in told("start", "chat", spec)
    assert RolloutLog(store).latest() == []


def test_one_goes_on_until_it_is_over(place) -> None:
    spec, store = place
    nothing = told("abort", "chat", spec)
    assert "no rollout of chat goes on" in nothing
    assert f"try: ridgeline rollout status chat {spec}" in nothing
    run("start", "chat", spec, "--engine", "step=20ms")
    another = told("start", "chat", spec, "--engine", "step=30ms")
    assert "goes on" in another
    assert f"try: ridgeline rollout abort chat {spec}, or wait" in another
    assert "will be promoted" in run("promote", "chat", spec).output
    assert RolloutLog(store).going_on()[0].wish == "promote"
    assert "will go back" in run("abort", "chat", spec).output


def test_its_state_is_shown_with_the_evidence(place) -> None:
    spec, store = place
    none = run("status", "chat", spec)
    assert (none.exit_code, "ridgeline rollout start chat" in none.output) == (1, True)
    run("start", "chat", spec, "--engine", "step=20ms")
    log = RolloutLog(store)
    (kept,) = log.going_on()
    rollout = kept.rollout
    gate = {"name": "TTFT", "ratio": 1.4, "is_worse": True, "reason": "TTFT 1.40 times [old]"}
    evidence = {"planned": 206, "requests": {"old": 900, "new": 40}, "gates": [gate]}
    canary = Rollout(rollout.id, "chat", rollout.old, rollout.new, Phase.CANARY, 1, 1, "so far")
    log.moved(kept, canary, kept.old, evidence)
    output = run("status", "chat", spec).output
    for part in ("canary, 25% of requests", "so far", "40 of 206 requests", "step: 0.01s to 0.02s"):
        assert part in output
    assert "worse  TTFT 1.40 times [old]" in output  # no markup of ours
    (shown,) = json.loads(run("status", "chat", spec, "--json").output)
    assert (shown["phase"], shown["evidence"]["gates"]) == ("canary", [gate])


def test_without_a_database_there_is_nothing_to_roll_out(tmp_path) -> None:
    (tmp_path / "p.yaml").write_text(
        f"{SPEC}\ngateway: {{database: 'sqlite:///{tmp_path}/none.db'}}"
    )
    missing = told("status", "chat", tmp_path / "p.yaml")
    assert "is not there" in missing
    assert f"`ridgeline up {tmp_path}/p.yaml`" in missing
