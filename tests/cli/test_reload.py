"""`diff` and `reload`, against a door with a platform's answers behind it."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ridgeline.cli import ridgeline_command
from ridgeline.errors import LaunchError, SpecError
from ridgeline.launch.door import Door, door_of
from ridgeline.launch.running import write
from ridgeline.platform.changes import diff
from ridgeline.serving.control.versions import version_of
from ridgeline.spec import Platform, parse

WAS = "name: mine\nmodels: [{name: chat, engine: {kind: fake}}]\n"
MORE = "name: mine\nmodels: [{name: chat, engine: {kind: fake}, replicas: {max: 4}}]\n"
OTHER = "name: mine\nmodels: [{name: chat, engine: {kind: fake, step: 1s}}]\n"


@pytest.fixture
def platform() -> Iterator[dict[str, Any]]:
    """A platform that is up, as far as commands can see; what it was told."""
    running = write("mine", "http://127.0.0.1:1", ("chat",), Path("logs"))
    was, heard = parse(WAS, name="p"), {"live": {}}

    async def told(_: Any) -> Any:
        return {"written": was.model_dump(mode="json"), "live": heard["live"]}

    async def reload(values: Any) -> Any:
        wanted = Platform.model_validate(values["spec"])
        heard["spec"] = wanted
        if len(wanted.models) > 1:
            raise SpecError("chat still drains", where="models", remedy="later")
        return [change.told() for change in diff(was, wanted)]

    loop = asyncio.new_event_loop()
    door = Door(door_of(running), {"spec": told, "reload": reload})
    loop.run_until_complete(door.open())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield heard
    asyncio.run_coroutine_threadsafe(door.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def run(tmp_path: Path, text: str, *words: str) -> Any:
    (tmp_path / "p.yaml").write_text(text)
    verb, *options = words
    arguments = [verb, str(tmp_path / "p.yaml"), *options]
    return CliRunner().invoke(ridgeline_command, arguments, catch_exceptions=True)


def test_a_diff_says_what_would_change_and_what_to_type(platform, tmp_path):
    result = run(tmp_path, MORE, "diff")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "in place:          chat: replicas.max none becomes 4, at the autoscaler's next look",
        f"ridgeline reload {tmp_path / 'p.yaml'}",
    ]
    assert "spec" not in platform


def test_nothing_differs(platform, tmp_path):
    result = run(tmp_path, WAS, "diff")
    assert (result.exit_code, result.output) == (0, "mine runs as the spec says.\n")
    result = run(tmp_path, WAS, "reload")
    assert (result.exit_code, result.output) == (0, "mine runs as the spec says.\n")


def test_a_diff_that_would_be_refused_is_a_no(platform, tmp_path):
    result = run(tmp_path, OTHER, "diff")
    assert result.exit_code == 1
    first, last = result.output.splitlines()
    assert first.startswith("needs a rollout:   chat: engine.step 0.01s becomes 1.0s")
    spec = tmp_path / "p.yaml"
    assert last == (
        f"try: put the old version back into {spec}, then: "
        f"ridgeline rollout start chat {spec} --engine step=1.0s"
    )


def test_a_file_that_caught_up_with_a_rollout_is_no_difference(platform, tmp_path):
    platform["live"] = {"chat": version_of(parse(OTHER, name="p").models[0]).written()}
    assert run(tmp_path, OTHER, "diff").exit_code == 0


def test_a_reload_says_what_has_changed(platform, tmp_path):
    result = run(tmp_path, MORE, "reload")
    assert result.exit_code == 0
    assert platform["spec"] == parse(MORE, name="p")
    assert result.output.splitlines()[-1] == f"mine runs as {tmp_path / 'p.yaml'} says."


def test_a_reload_that_is_refused_is_a_no_with_the_command(platform, tmp_path):
    result = run(tmp_path, OTHER, "reload")
    assert result.exit_code == 1
    assert f"ridgeline rollout start chat {tmp_path / 'p.yaml'}" in result.output
    assert result.output.splitlines()[-1] == "Nothing was changed."


def test_what_the_platform_refuses_is_an_error_with_its_remedy(platform, tmp_path):
    two = WAS.replace("]", ", {name: b, engine: {kind: fake}}]")
    result = run(tmp_path, two, "reload")
    assert str(result.exception) == "models: chat still drains\n  try: later"


def test_json_has_the_changes(platform, tmp_path):
    for verb in ("diff", "reload"):
        told = json.loads(run(tmp_path, MORE, verb, "--json").output)
        assert told["platform"] == "mine"
        assert [change["where"] for change in told["changes"]] == ["models[chat].replicas.max"]


def test_a_platform_that_is_not_up_is_said(platform, tmp_path):
    result = run(tmp_path, WAS, "reload", "--name", "other")
    assert isinstance(result.exception, LaunchError)
    assert result.exception.remedy == "--name with one of: mine"
