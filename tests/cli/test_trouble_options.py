"""What goes wrong and which version comes next, from the command line."""

import pytest

from ridgeline.cli.trouble_options import changed, fault
from ridgeline.errors import SpecError
from ridgeline.platform.simulated import serving_of
from ridgeline.serving.policy.rolling import Rolling
from ridgeline.serving.policy.rollout import Plan
from ridgeline.serving.simulate.setup import Change, Fault, Trouble
from ridgeline.spec import load

SPEC = """
hardware: [{name: gpus, accelerator: h100-sxm}]
models:
  - {name: chat, model: llama-3.1-8b, on: gpus, engine: {kind: vllm, max_seqs: 64}}
"""


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("dies,at=30", Fault(30.0, Trouble.DIES, "chat")),
        ("dies,at=30,number=2,kind=chat-far", Fault(30.0, Trouble.DIES, "chat-far", 2)),
        ("slow,at=1,for=60,factor=3", Fault(1.0, Trouble.SLOW, "chat", 0, 60.0, 3.0)),
        ("silent,at=1,for=60", Fault(1.0, Trouble.SILENT, "chat", 0, 60.0)),
        ("lost,region=eu,at=9", Fault(9.0, Trouble.LOST, "chat", region="eu")),
    ],
)
def test_a_fault_is_what_it_says(text, meant):
    assert fault(text, "chat") == meant


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("boom", "is no fault"),
        ("dies,at", "no KEY=VALUE"),
        ("dies,at=1,at=2", "no KEY=VALUE"),
        ("dies,at=-1", "is no number"),
        ("dies,at=nan", "is no number"),
        ("dies,factor=2", "'factor' is no part"),
        ("slow,at=1", "a factor is of a slow one"),
        ("slow,factor=0", "a factor is of a slow one"),
        ("lost,at=1", "a region is lost"),
        ("dies,region=eu", "'region' is no part"),
    ],
)
def test_a_fault_that_is_none_is_refused(text, problem):
    with pytest.raises(SpecError, match=problem) as caught:
        fault(text, "chat")
    assert caught.value.where == "--fault"


@pytest.fixture
def specs(tmp_path):
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(SPEC)
    new.write_text(SPEC.replace("max_seqs: 64", "max_seqs: 8"))
    return serving_of(load(old)), new


def test_a_change_brings_the_model_of_the_other_spec(specs):
    serving, new = specs
    found = changed(serving, [f"rollout,to={new},at=60,steps=0.1/0.5,keep=9"], "chat")
    old, other = found.models
    assert (old.engine.max_seqs, other.engine.max_seqs) == (64, 8)
    assert (other.served, other.replicas) == ("chat", 0)
    assert found.changes == (Change(60.0, "chat", other.name, Plan((0.1, 0.5), keep_s=9.0)),)
    rolling = changed(serving, [f"rolling,to={new},surge=0.5,deadline=60"], "chat")
    assert rolling.changes[0].how == Rolling(0.5, 0.25, 60.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("swap,to={new}", "is no change"),
        ("rollout,at=1", "names no new spec"),
        ("rollout,to={new},surge=1", "'surge' is no part"),
        ("rollout,to={new},steps=0.5/0.1", "growing shares"),
        ("rollout,to={new},steps=2", "growing shares"),
        ("rolling,to={new},surge=0,unavailable=0", "cannot begin"),
        ("rolling,to=/nowhere.yaml", "cannot be read"),
    ],
)
def test_a_change_that_is_none_is_refused(specs, text, problem):
    serving, new = specs
    with pytest.raises(SpecError, match=problem):
        changed(serving, [text.format(new=new)], "chat")


def test_a_change_to_hardware_that_is_not_there_is_refused(specs):
    serving, new = specs
    new.write_text(SPEC.replace("gpus", "others"))
    with pytest.raises(SpecError, match="the first spec has not"):
        changed(serving, [f"rollout,to={new}"], "chat")
    new.write_text(SPEC.replace("name: chat", "name: code"))
    with pytest.raises(SpecError, match="has no model 'chat'"):
        changed(serving, [f"rollout,to={new}"], "chat")
