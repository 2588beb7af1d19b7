import json
import re

from click.testing import CliRunner

from ridgeline.cli import ridgeline_command
from ridgeline.serving.spec import FakeEngine, GatewaySpec, ModelSpec, VllmEngine
from ridgeline.spec import load, parse


def run(*args):
    return CliRunner().invoke(ridgeline_command, [str(arg) for arg in args])


def test_the_file_written_is_valid_and_shows_the_defaults(tmp_path):
    file = tmp_path / "platform.yaml"
    assert run("init", file).exit_code == 0
    platform = load(file)
    name = "smollm2-135m-instruct"
    assert platform.models == [ModelSpec(name=name, model=name)]
    assert platform.gateway == GatewaySpec()


def test_the_file_shows_every_key_of_our_engine(tmp_path):
    file = tmp_path / "platform.yaml"
    run("init", file)
    text = file.read_text()
    schema = json.loads(run("schema").output)
    for part in (
        "RidgelineEngine",
        "UrlEngine",
        "FakeEngine",
        "GatewaySpec",
        "ModelSpec",
        "Replicas",
        "Scale",
        "Routing",
        "Simulated",
        "SimulatedSpeculation",
        "TierSpec",
        "AdaptersSpec",
        "Group",
        "Prefill",
        "HardwareSpec",
        "SpotSpec",
        "RegionSpec",
    ):
        for key in schema["$defs"][part]["properties"]:
            assert f"{key}:" in text, key


def test_what_is_commented_out_is_valid_with_its_defaults(tmp_path):
    """Whoever takes the # away gets what the file says."""
    file = tmp_path / "platform.yaml"
    run("init", file)
    is_key = re.compile(r"^( *)# (?=[# ]*(?:- name|[a-z_]+):)", re.MULTILINE)
    shown = is_key.sub(r"\1", is_key.sub(r"\1", file.read_text()))  # some are within others
    models = {one.name: one for one in parse(shown, name="platform.yaml").models}
    fake = models["stand-in"]
    assert fake.model == "llama-3.1-8b"
    assert fake.engine == FakeEngine(kind="fake", accelerator="h100-sxm")
    assert models["large"].engine == VllmEngine(kind="vllm", tensor_parallel=4)
    assert models["big"].engine.kind == "url"


def test_a_file_that_is_there_is_kept(tmp_path):
    file = tmp_path / "platform.yaml"
    file.write_text("mine")
    result = run("init", file)
    assert "is there already" in str(result.exception)
    assert file.read_text() == "mine"
    assert run("init", file, "--force").exit_code == 0
    assert file.read_text() != "mine"
