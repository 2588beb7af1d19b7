import json

import pytest
from click.testing import CliRunner

from ridgeline.cli import doctor as verb
from ridgeline.platform.doctor.finding import right, warning, wrong

RIGHT = right("python", "Python 3.11.9")
WATCH = warning("clock", "nothing keeps it right", "it drifts", "timedatectl set-ntp true")
BAD = wrong("port", "127.0.0.1:80 is taken by process 7 (nginx)", "`up` fails", "stop [it]")


@pytest.fixture
def doctor(monkeypatch):
    def run(*found, options=()):
        monkeypatch.setattr(verb, "examine", lambda _: list(found))
        return CliRunner().invoke(verb.doctor, options)

    return run


def test_the_answer_comes_first_then_what_is_wrong_then_the_rest(doctor):
    result = doctor(RIGHT, WATCH, BAD)
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "1 is wrong, 1 thing to know of.",
        "wrong    port: 127.0.0.1:80 is taken by process 7 (nginx)",
        "         `up` fails",
        "         try: stop [it]",
        "warning  clock: nothing keeps it right",
        "         it drifts",
        "         try: timedatectl set-ntp true",
        "ok       python: Python 3.11.9",
    ]


@pytest.mark.parametrize(
    ("found", "answer", "status"),
    [
        ([RIGHT], "Nothing is wrong.", 0),
        ([RIGHT, WATCH, WATCH], "Nothing is wrong; 2 things to know of.", 0),
        ([BAD, BAD], "2 are wrong.", 1),
    ],
)
def test_only_what_is_wrong_makes_the_status_1(doctor, found, answer, status):
    result = doctor(*found)
    assert (result.output.splitlines()[0], result.exit_code) == (answer, status)


def test_json_says_the_same(doctor):
    result = doctor(RIGHT, WATCH, BAD, options=["--json"])
    told = json.loads(result.output)
    assert (told["wrong"], told["warnings"]) == (1, 1)
    assert told["findings"][2] == {
        "check": "port",
        "level": "wrong",
        "said": "127.0.0.1:80 is taken by process 7 (nginx)",
        "means": "`up` fails",
        "remedy": "stop [it]",
    }
