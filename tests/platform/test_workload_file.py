"""Workload files: what they may say, and what is said of what they may not."""

import gzip
import re
import textwrap
from pathlib import Path

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.workload_file import read_workload
from ridgeline.serving.simulate.streams import Sessions
from ridgeline.workload import Sizes

WHOLE = """
lasts: 10m
streams:
  - {name: chats, tenant: search, rate: 1, sessions: {turns: "uniform:1:6", think: 5s}, prompt: 120,
     output: "lognormal:100:0.5", shared_prefix: 400, from: 30s}
  - {tenant: night, model: code, clients: 4, think: 500ms, requests: 100}
  - {tenant: apps, rate: 3, arrivals: "gamma:2", profile: "onoff:10:20", lasts: 1m}
  - {trace: old.csv.gz, speed: 2, tenant: old}
"""
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,5\n4,6,6\n"


def written(tmp_path, text: str):
    (tmp_path / "old.csv.gz").write_bytes(gzip.compress(TRACE.encode()))
    (tmp_path / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n1,1\n")
    path = tmp_path / "workload.yaml"
    path.write_text(text)
    return path


def test_all_that_a_file_says_is_in_its_streams(tmp_path):
    chats, night, apps, old = read_workload(written(tmp_path, WHOLE), ["chat", "code"]).streams
    assert (chats.name, chats.tenant, chats.from_s, chats.lasts_s) == ("chats", "search", 30, 600)
    assert chats.sessions == Sessions(Sizes("uniform", 1, 6), 5.0)
    assert (chats.prompt, chats.shared_tokens) == (Sizes("fixed", 120), 400)
    assert (night.name, night.model, night.clients, night.think_s) == ("night", "code", 4, 0.5)
    assert night.requests == 100
    assert (apps.arrivals.cv, apps.profile.name, apps.lasts_s) == (2.0, "10 s on, 20 s off", 60)
    assert apps.requests is None
    assert (old.trace.requests[1].at_s, old.name) == (2.0, "old")


def test_without_an_end_there_is_one(tmp_path):
    (stream,) = read_workload(written(tmp_path, "streams: [{rate: 2}]"), ["chat"]).streams
    assert (stream.requests, stream.name, stream.model) == (1000, "stream-0", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("streams: [{}]", r"streams\[0\]: says not how often it asks"),
        ("streams: [{rate: 1, clients: 2}]", "one of rate, clients and trace"),
        ("streams: [{rate: 0}]", r"streams\[0\]\.rate: .*greater than 0"),
        ("streams: [{rate: .nan}]", r"streams\[0\]\.rate"),
        ("streams: [{rate: 1, speed: 2}]", "speed means nothing beside rate"),
        ("streams: [{clients: 1, from: 2s}]", "from means nothing beside clients"),
        ("streams: [{trace: old.csv.gz, prompt: 5}]", "prompt means nothing beside trace"),
        ("streams: [{rate: 1, prompt: zipf}]", r"prompt: \"zipf\" is not a number of tokens.*\n"),
        ("streams: [{rate: 1, arrivals: never}]", "arrivals: .*not a way to arrive"),
        ("streams: [{rate: 1, profile: 'step:1'}]", "profile: .*is no profile"),
        ("streams: [{rate: 1, tenat: a}]", "tenat: unknown key\n  try: one of: name, model"),
        ("streams: [{rate: 1, sessions: {turn: 2}}]", "unknown key\n  try: one of: turns, think"),
        ("stream: []", "stream: unknown key\n  try: one of: lasts, streams"),
        ("streams: []", "streams: "),
        ("lasts: 10m", "streams: is missing"),
        ("streams: [{rate: 1, lasts: 10}]", "unit"),
        ("streams: [{rate: 1, tenant: a}, {rate: 1, tenant: a}]", "two streams are called 'a'"),
        ("streams: [{rate: 1, model: gpt}]", r"streams\[0\]\.model: 'gpt' is no model of the spec"),
        ("streams: [{trace: none.csv}]", r"streams\[0\]\.trace: .*cannot be read"),
        ("streams: [{trace: lengths.csv}]", "has no times"),
        ("- 1", "is not a mapping"),
        ("streams: [", "line 1: is not YAML"),
        ("a: 1\na: 2", "line 2: is not YAML: the key 'a' stands here twice"),
        ("\x00", "is not YAML"),
        ("x: " + "[" * 5000, "is not YAML"),
        ("#" * (1 << 20) + "\n", "is over 1 MiB"),
    ],
)
def test_what_is_wrong_is_said_with_its_field_and_a_remedy(tmp_path, text, said):
    with pytest.raises(SpecError) as error:
        read_workload(written(tmp_path, text), ["chat"])
    assert re.search(said, str(error.value)), str(error.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(SpecError, match="cannot be read"):
        read_workload(tmp_path / "none.yaml", ["chat"])


def test_the_file_in_the_guide_is_one(tmp_path):
    guide = Path(__file__).parents[2] / "docs/guide/traces.md"
    shown = guide.read_text().partition("    # workload.yaml\n")[2].partition("\n\n")[0]
    path = written(tmp_path, textwrap.dedent(shown))
    (tmp_path / "requests.jsonl").write_text(TRACE)
    names = [one.name for one in read_workload(path, ["chat"]).streams]
    assert names == ["chats", "night", "old"]
