"""What `ridgeline simulate` is told to ask."""

import json

import pytest
from click.testing import CliRunner

from ridgeline.cli import ridgeline_command
from ridgeline.cli.traffic_options import parse_tenants
from ridgeline.errors import SpecError

SPEC = """
models:
  - {name: chat, engine: {kind: fake, kv_tokens: 9000}, slo: {ttft: 500ms, tpot: 20ms}}
  - {name: code, engine: {kind: fake}, slo: {ttft: 500ms, tpot: 20ms}}
tenants: [{name: search}, {name: night, priority_class: bulk}]
"""
WORKLOAD = """
streams:
  - {tenant: search, rate: 5, requests: 30, prompt: 100, output: 10}
  - {tenant: night, model: code, clients: 2, requests: 20, prompt: 100, output: 10}
"""


@pytest.fixture
def spec(tmp_path):
    """A platform of two models and two tenants."""
    path = tmp_path / "p.yaml"
    path.write_text(SPEC)
    return path


def run(spec, *args):
    command = ["simulate", "serving", str(spec), *map(str, args)]
    return CliRunner().invoke(ridgeline_command, command)


def told(spec, *args):
    result = run(spec, *args, "--json")
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.output)


def test_the_packaged_example_runs_on_any_spec_and_what_is_too_long_is_counted(spec):
    found = told(spec, "--trace", "example", "--requests", 400)
    assert found["requests"] == 400
    assert found["ends"]["too_long"] > 0
    assert set(found["tenants"]) == {"assistant", "search", "reports"}


def test_several_models_are_asked_by_several_tenants_at_once(spec, tmp_path):
    (tmp_path / "w.yaml").write_text(WORKLOAD)
    found = told(spec, "--workload", tmp_path / "w.yaml")
    assert found["model"] == "chat, code"
    assert (found["tenants"]["search"]["requests"], found["tenants"]["night"]["requests"]) == (
        30,
        20,
    )
    again = told(spec, "--workload", tmp_path / "w.yaml")
    assert found["digest"] == again["digest"]


def test_tenants_get_their_shares(spec):
    found = told(spec, "--rate", 20, "--requests", 200, "--tenants", "search:0.7,night:0.3")
    counts = {name: one["requests"] for name, one in found["tenants"].items()}
    assert sum(counts.values()) == 200
    assert 120 < counts["search"] < 160


def test_the_events_of_a_run_are_a_trace_for_the_next(spec, tmp_path):
    events = tmp_path / "events"
    first = told(spec, "--rate", 20, "--requests", 50, "--events", events)
    again = told(spec, "--trace", events)
    assert again["requests"] == 50
    assert again["ttft_s"] == pytest.approx(first["ttft_s"])


def log(tmp_path, model: str):
    row = {"event": "request", "at_unix_s": 1.7e9, "model": model, "tenant": "search",
           "input_tokens": 100, "output_tokens": 5}  # fmt: skip
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps({**row, "at_unix_s": 1.7e9 + n}) + "\n" for n in range(9)))
    return path


def test_yesterdays_requests_ask_the_models_they_asked_or_the_one_that_is_named(spec, tmp_path):
    assert told(spec, "--trace", log(tmp_path, "code"))["model"] == "code"
    result = run(spec, "--trace", log(tmp_path, "gone"))
    assert "asks the model 'gone', which the spec has not" in str(result.exception)
    assert told(spec, "--trace", log(tmp_path, "gone"), "--model", "chat")["model"] == "chat"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "what is asked"),
        (["--rate", 1, "--clients", 2], "what is asked"),
        (["--profile", "diurnal:2"], "needs a rate"),
        (["--rate", 1, "--speed", 2], "--speed: means nothing beside --rate"),
        (["--rate", 1, "--think-s", 2], "--think-s: means nothing beside --rate"),
        (["--clients", 1, "--arrivals", "poisson"], "--arrivals: means nothing beside --clients"),
        (["--trace", "example", "--rate", 1], "--rate: means nothing beside --trace"),
        (["--trace", "example", "--prompt", "5"], "--prompt: means nothing beside --trace"),
        (["--trace", "example", "--tenants", "a:1"], "has tenants of its own"),
        (["--workload", "w", "--requests", 5], "--requests: means nothing beside --workload"),
        (["--workload", "w"], "w cannot be read"),
        (["--rate", 1, "--model", "gone"], "'gone' is no model"),
        (["--rate", 1, "--tenants", "a"], "no tenants with shares"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(spec, args, said):
    result = run(spec, *args)
    assert isinstance(result.exception, SpecError), result.output
    assert said in str(result.exception)


@pytest.mark.parametrize("text", ["a", "a:0", "a:-1", "a:nan", ":1", "a:1,a:2", "a:1,", "a:x"])
def test_shares_that_are_none_are_refused(text):
    with pytest.raises(SpecError, match=r"search:0\.7"):
        parse_tenants(text)


def test_shares_need_not_add_up():
    assert parse_tenants("a:2, b:6") == (("a", 2.0), ("b", 6.0))
    assert parse_tenants("") == ()
