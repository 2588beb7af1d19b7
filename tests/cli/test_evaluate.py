import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from letters import Letters, serving
from ridgeline.cli.evaluate import evaluate
from ridgeline.errors import SpecError
from ridgeline.serving.control.versions import version_of
from ridgeline.serving.evaluate.reference import stored
from ridgeline.spec import load

SPEC = """
models:
  - name: m
    engine: {kind: fake}
gateway:
  api_key_env: TEST_EVALUATE_KEY
"""


@pytest.fixture
def url():
    with serving(Letters()) as address:
        yield address


@pytest.fixture
def spec(tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_EVALUATE_KEY", "k")
    path = tmp_path / "platform.yaml"
    path.write_text(SPEC)
    return path


def run(*arguments):
    result = CliRunner().invoke(evaluate, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_reference_is_made_and_an_unchanged_server_passes(url, tmp_path):
    file = tmp_path / "good.json"
    made = run("m", "--url", url, "--save", file)
    assert made.exit_code == 0
    assert f"{file}: " in made.output
    held = run("m", "--url", f"{url.removeprefix('http://')}/v1/", "--against", file, "--exact")
    assert held.exit_code == 0
    assert held.output.startswith("all 7 categories are as in the reference\n")
    assert held.output.count(" pass ") == 7
    assert max(map(len, held.output.splitlines())) <= 80


def test_exit_status_is_1_and_the_fault_is_named_where_a_category_fails(url, tmp_path):
    file = tmp_path / "good.json"
    run("m", "--url", url, "--save", file)
    with serving(Letters(temperature=0.2)) as changed:
        failed = run("m", "--url", changed, "--against", file)
        told = json.loads(run("m", "--url", changed, "--against", file, "--json").output)
    assert failed.exit_code == 1
    assert max(map(len, failed.output.splitlines())) <= 80
    first, second, *_ = failed.output.splitlines()
    assert first == "1 of 7 categories are not as in the reference"
    assert second.startswith("  config fault found: sampling defaults: ")
    assert told["passed"] is False
    assert told["faults"][0]["kind"] == "sampling defaults"
    assert [one["category"] for one in told["findings"] if not one["passed"]] == ["defaults"]


def test_with_a_spec_the_reference_is_that_of_its_version_and_the_key_the_gateways(spec):
    server = Letters(key="k")
    version = version_of(load(spec).models[0])
    with serving(server) as url:
        run("m", spec, "--url", url, "--save")
        assert stored(version.id).exists()
        assert run("m", spec, "--url", url).exit_code == 0
    with serving(replace(server, template="{content}")) as url:
        assert run("m", spec, "--url", url).exit_code == 1
    assert '"k"' not in stored(version.id).read_text()


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["m"], "--against"),
        (["m", "--save"], "--against"),
        (["m", "--save", "a.json", "--against", "b.json"], "--save"),
        (["m", "--against", "missing.json"], "missing.json"),
    ],
)
def test_what_is_missing_is_said(arguments, where):
    with pytest.raises(SpecError) as raised:
        run(*arguments)
    assert raised.value.where == where


def test_a_model_that_the_spec_does_not_have_is_named_with_those_it_has(spec):
    with pytest.raises(SpecError) as raised:
        run("other", spec)
    assert raised.value.remedy == "one of: m"
