"""How far a simulation has come."""

import sys

import pytest

from ridgeline.cli.simulate_progress import Progress

NS = 10**9


class Clock:
    """Hands on a clock that a test turns."""

    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def test_on_a_terminal_it_says_how_far_and_how_long_still(monkeypatch, capsys, clock):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress(1000, clock) as progress:
        clock.now_s = 0.5
        progress.tick(5 * NS, 100)
        assert capsys.readouterr().err == "", "who is done soon hears nothing"
        clock.now_s = 2.0
        progress.tick(60 * NS, 250)
        assert "250 of 1,000 requests, 60 s simulated, 6 s left" in capsys.readouterr().err
        clock.now_s = 2.1
        progress.tick(70 * NS, 260)
        assert capsys.readouterr().err == "", "a few times a second at most"
        clock.now_s = 3.0
        progress.tick(1 * NS, 10)
        assert "run 2, 10 of 1,000" in capsys.readouterr().err
    assert capsys.readouterr().err.strip() == "", "the line is gone"


def test_off_a_terminal_it_is_silent_and_knows_how_far_it_is(capsys, clock):
    with Progress(0, clock) as progress:
        clock.now_s = 9.0
        progress.tick(60 * NS, 250)
    assert capsys.readouterr().err == ""
    assert (progress.virtual_s, progress.ended) == (60.0, 250)
