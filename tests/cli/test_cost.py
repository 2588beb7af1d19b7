"""`ridgeline cost`: the answer first, and lines that add up."""

import json
import re
import time
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ridgeline.cli import ridgeline_command
from ridgeline.errors import RidgelineError
from ridgeline.serving.gateway.replica_time import write_minutes
from ridgeline.serving.gateway.usage import MINUTE_NS
from ridgeline.store.database import open_store
from ridgeline.store.tables import entries

#: The day of ledger row S192, from midnight: four replicas at $5 an hour, 5 requests a second.
DAY = ["--since", "2026-11-01", "--until", "2026-11-02"]
FIRST_MINUTE = 1_793_491_200 // 60


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    open_store(url).dispose()
    return url


def a_day(url: str) -> None:
    """The claim's day with one entry for each thousand requests, at a thousandth of the price."""
    store = open_store(url)
    none = dict.fromkeys(("busy_ns", "idle_ns", "loading_ns", "draining_ns"), 0)
    usd = Decimal("0.005")
    write_minutes(
        store,
        [
            {
                "replica": f"chat-{replica}",
                "minute": FIRST_MINUTE + minute,
                "model": "chat",
                "usd_per_hour": usd,
                **none,
                "busy_ns" if minute < 300 else "idle_ns": MINUTE_NS,
            }
            for replica in range(4)
            for minute in range(1440)
        ],
    )
    with store.begin() as connection:
        connection.execute(entries.insert(), [entry(number) for number in range(360)])
    store.dispose()


def entry(number: int) -> dict[str, object]:
    began_ns = (FIRST_MINUTE + number % 300) * MINUTE_NS
    return {
        "request_id": f"req-{number}",
        "tenant": ("search", "support", "[bold]")[number % 3],
        "key_id": "key-1",
        "model": "chat",
        "endpoint": "/v1/chat/completions",
        "replica": f"chat-{number % 4}",
        "status": 200,
        "input_tokens": 1000,
        "cached_tokens": 0,
        "output_tokens": 100,
        "usd": Decimal("0.002"),
        "basis": "usage",
        "began_ns": began_ns,
        "ended_ns": began_ns + 10**9,
    }


def cost(*arguments: str, **env: str) -> Result:
    return CliRunner(env=env).invoke(ridgeline_command, ["cost", *arguments])


def test_the_answer_comes_first_and_says_what_binds(database: str) -> None:
    a_day(database)
    result = cost("--database", database, *DAY)
    assert result.exit_code == 0
    text = " ".join(result.output.split())
    assert text.startswith(
        "$1.33 for 1,000 requests against a floor of $0.28: the replicas were 21 % busy idle binds"
    )
    assert "360 requests · bill $0.48" in text
    assert "[bold]" in text  # a tenant's name is no markup
    assert "stand in" in text
    lines = result.output.splitlines()
    assert lines[0].endswith("idle binds")  # a pipe wraps nothing
    assert any(re.match(r"  \[bold\] +chat +120 +0.28 → 1.33 .* \$0.24$", one) for one in lines)


@pytest.mark.parametrize("by", ["tenant", "tenant,model,key,replica"])
def test_at_80_columns_no_amount_is_broken(database: str, by: str) -> None:
    a_day(database)
    asked = ["--database", database, "--by", by, *DAY]
    seen = cost(*asked, FORCE_COLOR="1", TERM="dumb", COLUMNS="80").output
    # Commands are not wrapped: they are to be copied.
    lines = [line for line in seen.splitlines() if not line.startswith("  ridgeline")]
    assert max(map(len, lines)) <= 80
    amounts = r"[\d.]+ → [\d.]+"
    piped = cost(*asked).output
    assert len(re.findall(amounts, seen)) == len(re.findall(amounts, piped)) > 0


def test_the_printed_lines_are_the_printed_total(database: str) -> None:
    a_day(database)
    text = cost("--database", database, "--by", "tenant", *DAY).output
    bill = text[text.index("  bill ") :]
    amounts = [Decimal(one) for one in re.findall(r" (\d+\.\d+)$", bill, re.MULTILINE)]
    *lines, total = amounts
    assert sum(lines) == total == Decimal("0.48")
    assert len(lines) == 3 + 3


def test_json_has_every_amount_as_text_and_they_add_up_to_the_nano_dollar(database: str) -> None:
    a_day(database)
    result = cost("--database", database, "--by", "tenant,replica", "--json", *DAY)
    data = json.loads(result.output)
    parts = [data[f"{name}_usd"] for name in ("unsettled", "idle", "loading", "drained")]
    floors = [line["floor_usd"] for line in data["lines"]]
    assert sum(map(Decimal, [*parts, *floors])) == Decimal(data["bill_usd"])
    assert {line["replica"] for line in data["lines"]} == {f"chat-{at}" for at in range(4)}
    assert data["busy_share"] == pytest.approx(5 / 24, abs=1e-6)
    assert data["lines"][0]["per_million_input_tokens"]["floor_usd"]


def test_named_step_times_are_used_and_nothing_stands_in(database: str) -> None:
    a_day(database)
    result = cost("--database", database, "--like", "chat=llama-3.1-70b@4xh100-sxm", *DAY)
    assert "llama-3.1-70b@4xh100-sxm" in result.output
    assert "stand in" not in result.output


def test_an_empty_ledger_has_no_requests_yet(database: str) -> None:
    result = cost("--database", database)
    assert result.exit_code == 1
    assert result.output.startswith("No requests yet")
    assert f"\n  ridgeline cost --database {database} --since 30d\n" in result.output
    assert json.loads(cost("--database", database, "--json").output)["lines"] == []


def test_a_spec_names_the_ledger(tmp_path: Path, database: str) -> None:
    a_day(database)
    spec = tmp_path / "platform.yaml"
    spec.write_text(
        f"models: [{{name: chat, engine: {{kind: url, urls: ['http://127.0.0.1:1']}}}}]\n"
        f"gateway: {{database: '{database}'}}\n"
    )
    by_spec = cost(str(spec), *DAY).output
    by_url = cost("--database", database, *DAY).output
    assert by_spec == by_url.replace(f"cost --database {database}", f"cost {spec}")
    assert f"\n  ridgeline cost {spec} --like MODEL@ACCELERATOR\n" in by_spec
    assert "one of them" in str(cost(str(spec), "--database", database).exception)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "yesterday"], "is no time"),
        (["--since", "1h", "--until", "2h"], "ends before"),
        (["--by", "colour"], "nothing to group by"),
        (["--like", "llama-3.1-8b"], "MODEL@ACCELERATOR"),
    ],
)
def test_what_cannot_be_asked_is_told_with_a_remedy(
    database: str, arguments: list[str], said: str
) -> None:
    a_day(database)
    result = cost("--database", database, *arguments)
    if arguments[0] == "--like":
        result = cost("--database", database, *arguments, *DAY)
    assert isinstance(result.exception, RidgelineError)
    assert said in str(result.exception)
    assert "try:" in str(result.exception)


def test_times_are_utc_and_may_be_relative(database: str) -> None:
    a_day(database)
    shifted = ["--since", "2026-11-01T01:00+01:00", "--until", "2026-11-02T01:00+01:00"]
    assert (
        cost("--database", database, *shifted).output == cost("--database", database, *DAY).output
    )
    ago_s = time.time() - FIRST_MINUTE * 60
    result = cost("--database", database, "--since", f"{ago_s + 60:.0f}s", "--json")
    assert json.loads(result.output)["requests"] == 360
