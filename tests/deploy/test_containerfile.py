"""The Containerfile is parsed, not built: there is no container engine where tests run."""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from ridgeline.cli import ridgeline_command
from ridgeline.platform import live

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy/Containerfile"
WORDS = {
    "ARG", "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL",
    "HEALTHCHECK", "ENTRYPOINT", "CMD",
}  # fmt: skip


@dataclass(frozen=True)
class Instruction:
    word: str
    rest: str


def instructions() -> list[Instruction]:
    lines = [line for line in FILE.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [Instruction(word, rest) for word, rest in found]


def stages() -> list[list[Instruction]]:
    found: list[list[Instruction]] = []
    for one in instructions():
        if one.word == "FROM":
            found.append([])
        if found:
            found[-1].append(one)
    return found


def last(word: str) -> str:
    """What the last stage's last instruction of that name says: the one that counts."""
    return [one.rest for one in stages()[-1] if one.word == word][-1]


def test_it_has_only_words_that_builders_know():
    assert {one.word for one in instructions()} <= WORDS


def test_no_image_is_the_latest_one():
    images = [stage[0].rest.split()[0] for stage in stages()]
    assert len(images) == 2
    for image in images:
        tag = image.partition(":")[2]
        assert tag
        assert "latest" not in tag


def test_the_last_stage_has_no_compiler_and_no_package_lists():
    final = stages()[-1]
    assert "slim" in final[0].rest
    commands = " ".join(one.rest for one in final if one.word == "RUN")
    assert not re.search(r"apt|gcc|g\+\+|build-essential|pip install", commands)
    (copied,) = [one.rest for one in final if one.word == "COPY"]
    assert copied == "--from=build /opt/ridgeline /opt/ridgeline"


def test_it_runs_as_a_number_that_is_not_root():
    user = last("USER")
    assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", user)
    words = [one.word for one in stages()[-1]]
    assert "RUN" not in words[words.index("USER") :]
    assert f"--uid {user.split(':')[0]}" in " ".join(one.rest for one in stages()[-1])


def test_pip_keeps_no_cache_and_the_versions_of_ci():
    runs = " ".join(one.rest for one in instructions() if one.word == "RUN")
    installs = re.findall(r"pip install (.*?)(?:&&|;|$)", runs)
    assert len(installs) == 2
    assert all("--no-cache-dir" in one and "-c constraints.txt" in one for one in installs)


def test_whatever_is_copied_is_there_and_is_not_left_out_of_the_context():
    ignored = (ROOT / "deploy/Containerfile.dockerignore").read_text().splitlines()
    assert "*" in ignored
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        name
        for one in stages()[0]
        if one.word == "COPY"
        for name in shlex.split(one.rest)[:-1]
    }  # fmt: skip
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("word", ["ENTRYPOINT", "CMD"])
def test_commands_are_lists_so_that_signals_arrive(word):
    assert all(isinstance(part, str) for part in json.loads(last(word)))


def test_what_it_starts_is_a_command_of_ours():
    program, verb, *options = json.loads(last("ENTRYPOINT")) + json.loads(last("CMD"))
    assert program == "ridgeline"
    command = ridgeline_command.get_command(None, verb)
    assert command is not None
    known = {name for parameter in command.params for name in parameter.opts}
    assert {option for option in options if option.startswith("--")} <= known


def test_its_health_is_that_of_the_port_it_listens_on():
    options, command = last("HEALTHCHECK").split("CMD", 1)
    program, flag, code = json.loads(command)
    assert (program, flag) == ("python", "-c")
    compile(code, "healthcheck", "exec")
    port = last("EXPOSE")
    arguments = json.loads(last("CMD"))
    assert arguments[arguments.index("--port") + 1] == port
    assert f":{port}/health" in code
    timeouts = dict(re.findall(r"--(timeout|interval)=(\d+)s", options))
    assert float(timeouts["timeout"]) > float(re.search(r"timeout=(\d+)", code)[1])


def test_it_stops_by_draining_and_is_given_the_time_for_it():
    assert last("STOPSIGNAL") == "SIGTERM"
    (given_s,) = re.findall(r"--stop-timeout (\d+)", FILE.read_text())
    assert int(given_s) >= live.DRAIN_S + 3 * live.PARTING_S


def test_what_is_kept_lies_in_the_volume():
    told = dict(part.split("=", 1) for part in shlex.split(last("ENV")))
    volume = last("VOLUME")
    assert told["RIDGELINE_STATE"].startswith(volume)
    assert told["RIDGELINE_CACHE"].startswith(volume)
