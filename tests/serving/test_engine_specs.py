"""What may be written of an engine that is not ours."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.serving.control.versions import read_version, version_of
from ridgeline.serving.spec import SglangEngine, VllmEngine
from ridgeline.spec import parse

ENGINE = "{models: [{name: a, model: m, engine: {kind: vllm, %s}}]}"


def engine(text):
    return parse(ENGINE % text, name="p").models[0].engine


def test_little_has_to_be_said():
    assert engine("") == VllmEngine(kind="vllm")
    text = (ENGINE % "").replace("vllm", "sglang")
    assert parse(text, name="p").models[0].engine == SglangEngine(kind="sglang")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("args: [--port, '1']", "args: --port is not yours to set; the gateway must reach it"),
        ("args: [--api_key=x]", "args: --api-key is not yours to set; the gateway must reach it"),
        ("args: [-tp, '2']", "args: -tp is not yours to set; write `tensor_parallel`"),
        ("env: {CUDA_VISIBLE_DEVICES: '0'}", "env: write `devices` in place of"),
        ("devices: [1, 1]", "a device is named twice"),
        ("devices: [-1]", "greater than or equal to 0"),
        ("memory_share: 90", "less than or equal to 1"),
        ("tensor_parallel: 0", "greater than or equal to 1"),
        ("threads: 2", "threads"),
    ],
)
def test_what_cannot_be_is_said(text, problem):
    with pytest.raises(SpecError) as caught:
        engine(text)
    assert problem in str(caught.value)


def test_who_wants_no_device_may_say_in_the_environment_what_is_used():
    told = engine("devices: [], env: {CUDA_VISIBLE_DEVICES: MIG-1}")
    assert told.env == {"CUDA_VISIBLE_DEVICES": "MIG-1"}


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_without_weights_there_is_nothing_to_serve(kind):
    with pytest.raises(SpecError, match=f"an engine of kind {kind} needs `model`"):
        parse(f"models: [{{name: a, engine: {{kind: {kind}}}}}]", name="p")


def test_a_version_keeps_all_of_it():
    text = ENGINE % "devices: [2, 3], tensor_parallel: 2, args: [--x], env: {A: b}, dtype: fp8"
    [model] = parse(text, name="p").models
    version = read_version(version_of(model).written())
    assert version.applied(model) == model
