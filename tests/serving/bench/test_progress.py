import io

import pytest
from rich.console import Console

from ridgeline.serving.bench import progress
from ridgeline.serving.bench.load import Plan
from ridgeline.serving.bench.progress import Counted, watching
from ridgeline.serving.bench.sample import Answer, Sample

PLAN = Plan("http://server", seed=1, workers=2, requests=4)
WHOLE = Sample(0, 0.0, 1, 1, Answer(0.0, 1.0, (0.5,)))
FAILED = Sample(1, 0.0, 1, 1, Answer(0.0, 1.0, error="timeout"))


def test_the_share_is_of_the_requests_where_they_are_counted():
    counted = Counted()
    counted.begin(PLAN)
    counted.count(WHOLE)
    counted.count(FAILED)
    assert counted.share() == 0.5
    assert counted.text() == "1 answered, 1 failed"


def test_a_replay_to_its_end_has_no_known_share():
    counted = Counted()
    counted.begin(Plan("http://server", seed=1))
    assert counted.share() is None


def test_a_pipe_gets_plain_lines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "TOLD_EVERY_S", 0.0)
    out = io.StringIO()
    with watching(Console(file=out, force_terminal=False)) as watcher:
        watcher.began(PLAN, "2 workers")
        watcher.seen(WHOLE)
    assert out.getvalue() == "2 workers ...\n  1 answered after 0 s\n"


def test_a_terminal_gets_a_bar_for_each_run():
    out = io.StringIO()
    with watching(Console(file=out, force_terminal=True, width=80)) as watcher:
        for text in ("warm-up", "2 workers"):
            watcher.began(PLAN, text)
            watcher.seen(WHOLE)
    assert "2 workers" in out.getvalue()
    assert "1 answered" in out.getvalue()
