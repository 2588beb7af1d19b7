"""`ridgeline plan` as a person meets it: what it prints, what it refuses, what it leaves behind."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from ridgeline.cli import ridgeline_command
from ridgeline.errors import RidgelineError
from ridgeline.platform.plan import topics

USERS = ["plan", "users-per-node"]


def run(*words: str) -> Result:
    return CliRunner().invoke(ridgeline_command, list(words))


def refused(*words: str) -> RidgelineError:
    error = run(*words).exception
    assert isinstance(error, RidgelineError), error
    return error


def test_without_a_topic_all_are_listed_by_subject_in_80_columns():
    result = run("plan")
    assert result.exit_code == 0
    assert all(re.search(rf"^  {name} ", result.output, re.M) for name in topics())
    assert max(map(len, result.output.splitlines())) <= 80
    assert {topic.subject for topic in topics().values()} <= set(result.output.splitlines())


@pytest.mark.parametrize("name", sorted(topics()))
def test_every_topic_answers_on_the_command_line(name):
    result = run("plan", name)
    assert result.exit_code in (0, 1), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("name", sorted(topics()))
def test_what_is_suggested_next_works(name):
    line = " ".join(run("plan", name).output.split("ridgeline plan ")[-1].split())
    assert line.startswith(f"{name} … --why | ")
    for option in line.split(" … ")[1].split(" | "):
        words = option.replace("'", "").split(" ", 1)
        result = run("plan", name, *words)
        assert result.exit_code in (0, 1), (option, result.exception, result.output)
        assert result.output, option


@pytest.mark.parametrize("name", sorted(topics()))
def test_every_topics_help_names_every_option(name):
    output = run("plan", name, "--help").output
    for parameter in topics()[name].parameters.values():
        assert f"--{parameter.option}" in output


def test_the_first_line_is_the_answer():
    first = run(*USERS).output.splitlines()[0]
    assert re.match(r"[0-9,]+ users", first)


@pytest.mark.parametrize("option", ["--users", "--context", "--gpus", "--headroom"])
def test_a_number_far_out_is_answered_or_refused(option):
    result = run(*USERS, option, "1e308")
    assert result.exception is None or isinstance(result.exception, RidgelineError | SystemExit)


def test_under_the_answer_stands_which_model_and_accelerator_it_is_about():
    for more in ([], ["--sweep", "gpus=4,8"], ["--sensitivity"]):
        lines = run(*USERS, "--accelerator", "A100", *more).output.splitlines()
        assert "  Llama 3.1 70B on A100 SXM4 80 GB" in lines


def test_a_number_has_its_derivation():
    output = run(*USERS, "--why", "per_user").output
    assert "per_user" in output
    assert "config of Llama 3.1 70B (catalog) [" in output
    assert max(map(len, output.splitlines())) <= 100


def test_a_derivation_of_nothing_names_the_nearest():
    error = refused(*USERS, "--why", "per_usr")
    assert (error.where, "per_user" in error.remedy) == ("--why", True)


def test_set_takes_parameters_catalog_values_and_intermediates():
    plain = json.loads(run(*USERS, "--json").output)
    for setting in ("context=16k", "kv_dtype=fp8", "memory_bytes=160GB", "left_bytes=1TB"):
        result = run(*USERS, "--set", setting, "--json")
        assert json.loads(result.output)["values"] != plain["values"], setting


def test_option_and_set_say_the_same():
    by_set = json.loads(run(*USERS, "--set", "context=16k", "--json").output)
    by_option = json.loads(run(*USERS, "--context", "16k", "--json").output)
    assert by_set["values"]["users_per_node"] == by_option["values"]["users_per_node"]


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["plan", "users-per-nod"], "plan"),
        (["plan", "platform.yaml"], "platform.yaml"),
        (["plan", "a.yml"], "a.yml"),
        ([*USERS, "--model", "llama-3.1-7"], "model"),
        ([*USERS, "--context", "8 GB"], "context"),
        ([*USERS, "--gpus", "0"], "gpus"),
        ([*USERS, "--gpus", "1.5"], "gpus"),
        ([*USERS, "--kv-dtype", "fp7"], "kv-dtype"),
        ([*USERS, "--set", "memory_bytes"], "--set"),
        ([*USERS, "--set", "memori=80GB"], "--set"),
        ([*USERS, "--set", "gpus=1", "--set", "gpus=2"], "--set"),
        ([*USERS, "--set", "memory_bytes=80"], "--set memory_bytes"),
        ([*USERS, "--sweep", "context"], "--sweep"),
        ([*USERS, "--sweep", "contxt=1:2"], "--sweep"),
        ([*USERS, "--sweep", "gpus=1:2", "--sweep", "users=1:2"], "--sweep"),
        ([*USERS, "--value", "nodes"], "--value"),
        ([*USERS, "--sensitivity", "--value", "nothing"], "--value"),
        ([*USERS, "--versus", "nodes"], "--versus"),
        ([*USERS, "--slo", "nodes=3"], "--slo"),
        ([*USERS, "--plot", "a.svg"], "--plot"),
        ([*USERS, "--sensitivity", "--plot", "a.pdf"], "--plot"),
        ([*USERS, "--json", "--markdown"], "--markdown"),
        ([*USERS, "--gpus", "4", "--gpus", "8"], "--gpus"),
        ([*USERS, "--users", "2000", "--set", "users=1000"], "--set users"),
        ([*USERS, "--gpus"], "--gpus"),
        ([*USERS, "--gpuz", "8"], "--gpuz"),
        ([*USERS, "--sweep", "gpus=1:2", "--plot", ""], "--plot"),
        ([*USERS, "--sweep", "gpus=4,8", "--plot", "/proc/x.svg"], "--plot"),
        ([*USERS, "--set", "memory_bytes=-80GB"], "--set memory_bytes"),
        ([*USERS, "--set", "layers=2.5"], "--set layers"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_where_and_remedy(words, where):
    error = refused(*words)
    assert error.where == where
    assert error.remedy


def test_a_refusal_leaves_with_status_2_and_no_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "ridgeline", *USERS, "--model", "llama-3.1-7"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 2
    assert "nearest" in done.stderr


def test_a_sweep_prints_its_points_and_draws_them(tmp_path):
    path = tmp_path / "sweep.svg"
    result = run(*USERS, "--sweep", "context=1k:64k:x2", "--plot", str(path))
    assert "1,024 tokens" in result.output
    assert "65,536 tokens" in result.output
    assert path.read_text().startswith("<?xml")


def test_a_sensitivity_is_sorted_and_drawn(tmp_path):
    path = tmp_path / "tornado.png"
    result = run(*USERS, "--sensitivity", "--plot", str(path))
    assert "memory_bytes" in result.output
    assert path.stat().st_size > 10_000


def test_json_says_everything_a_sweep_and_a_tornado_too():
    data = json.loads(run(*USERS, "--sweep", "gpus=4,8", "--sensitivity", "--json").output)
    assert data["sweep"]["points"] == [4, 8]
    assert data["sensitivity"]["swings"]
    assert data["derivation"]


def test_markdown_has_what_was_asked_beside_the_answer():
    output = run(*USERS, "--sweep", "gpus=4,8", "--markdown").output
    assert output.startswith("# users-per-node")
    assert "## Sweep" in output


def test_what_was_given_and_does_not_matter_is_told():
    output = run(*USERS, "--user-tokens-per-s", "0.1 tokens/s", "--users", "1000").output
    assert "users was given" not in output


def test_a_terminal_gets_the_same_words_in_colour():
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        [sys.executable, "-m", "ridgeline", *USERS],
        stdout=follower, stdin=follower, stderr=subprocess.PIPE, env=environment,
    ) as process:  # fmt: skip
        os.close(follower)
        seen = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:
                break
            if not part:
                break
            seen += part
    os.close(leader)
    assert process.returncode == 0
    text = seen.decode().replace("\r\n", "\n")
    assert "\x1b[1m" in text
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert [line.rstrip() for line in bare.splitlines()] == run(*USERS).output.splitlines()


def test_an_answer_needs_nothing_heavy():
    code = (
        "import sys; sys.argv = ['ridgeline', 'plan', 'users-per-node']\n"
        "from ridgeline.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = [n for n in ('matplotlib', 'torch', 'aiohttp', 'pydantic') if n in sys.modules]\n"
        "print(heavy, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
