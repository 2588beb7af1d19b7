import json

from click.testing import CliRunner

from ridgeline.cli import ridgeline_command
from ridgeline.serving.spec import GatewaySpec, ModelSpec
from ridgeline.spec import load


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
        "GatewaySpec",
        "ModelSpec",
        "Replicas",
        "Scale",
        "Routing",
    ):
        for key in schema["$defs"][part]["properties"]:
            assert f"{key}:" in text, key


def test_a_file_that_is_there_is_kept(tmp_path):
    file = tmp_path / "platform.yaml"
    file.write_text("mine")
    result = run("init", file)
    assert "is there already" in str(result.exception)
    assert file.read_text() == "mine"
    assert run("init", file, "--force").exit_code == 0
    assert file.read_text() != "mine"
