"""`ridgeline why`: the answer, the times, the scores; and what is said where there is none."""

import json

import pytest
from click.testing import CliRunner

from ridgeline.cli.why import why
from ridgeline.errors import SpecError
from ridgeline.store.database import open_store
from ridgeline.store.tables import decisions, entries

SCORE = {"load": 3, "backlog_tokens": 512, "warm_tokens": 64, "uncached_tokens": 8, "cost": 2080.0}
DETAIL = {
    "model": "chat",
    "endpoint": "/v1/chat/completions",
    "client_id": "mine-1",
    "class": "bulk",
    "rule": "prefix-sticky",
    "reasons": {"queue": "first in turn", "route": "warm: has 64 of 72 tokens"},
    "retries": 0,
    "resumed": 0,
    "replica": "chat-0",
    "status": 200,
    "error": "",
    "split_s": {"admission": 0.001, "prefill": 0.040, "decode": 0.5},
    "decisions": [
        {
            "view": {"rule": "prefix-sticky"},
            "route": {"replica": "chat-0", "scores": [{"replica": "chat-0", **SCORE}]},
        }
    ],
}


@pytest.fixture
def database(tmp_path) -> str:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    store = open_store(url)
    row = {"tenant": "search", "at_ns": 5, "detail": json.dumps(DETAIL, separators=(",", ":"))}
    from decimal import Decimal

    entry = {
        "request_id": "req-1", "tenant": "search", "key_id": "k", "model": "chat",
        "endpoint": "e", "replica": "chat-0", "status": 200, "input_tokens": 72,
        "cached_tokens": 64, "output_tokens": 12, "usd": Decimal("0.000123"), "basis": "usage",
        "began_ns": 1, "ended_ns": 2,
    }  # fmt: skip
    with store.begin() as connection:
        connection.execute(decisions.insert().values(request_id="req-1", **row))
        connection.execute(entries.insert().values(**entry))
    store.dispose()
    return url


@pytest.mark.parametrize("asked", ["req-1", "mine-1"])
def test_the_answer_its_times_and_scores(database, asked) -> None:
    told = CliRunner().invoke(why, [asked, "--database", database], catch_exceptions=False).output
    words = " ".join(told.split())
    for part in (
        "tenant search, class bulk",
        "went to chat-0; status 200",
        "warm: has 64 of 72 tokens",
        "0.000123000 USD: 72 tokens in (64 cached), 12 out, by usage",
        "decode 500.0",
        "chat-0 3 512 64 8 2,080",
    ):
        assert part in words, (part, words)


def test_json_has_it_all(database) -> None:
    told = CliRunner().invoke(why, ["req-1", "--database", database, "--json"]).output
    assert json.loads(told)["decisions"] == DETAIL["decisions"]


@pytest.mark.parametrize("asked", ["req-2", "%", "_", 'mine"'])
def test_a_request_that_is_not_on_record_is_said_so(database, asked) -> None:
    with pytest.raises(SpecError, match="on record"):
        CliRunner().invoke(why, [asked, "--database", database], catch_exceptions=False)
