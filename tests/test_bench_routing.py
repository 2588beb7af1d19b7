import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))  # scripts, not a package

import routing
import routing_load
import routing_rules
from ridgeline.errors import BenchError
from ridgeline.serving.fake.server import FakeReplica
from ridgeline.serving.fake.setup import Setup
from ridgeline.serving.simulate.talks import chats, heavy_tail
from routing_fleet import MODEL, PEERS, RULES, router
from routing_load import Asked, Case, Run, play, text


def run(prefilled: float = 100.0, ttft_s: float = 0.1, loads: tuple[float, ...] = (1, 1)) -> Run:
    return Run([Asked(ttft_s, 2 * ttft_s)] * 10, prefilled, loads, 5.0)


def taken(case: str, ours: Run, other: Run) -> dict[str, dict[str, list[Run]]]:
    names = [*routing.BESIDE, *PEERS]
    return {case: {routing.OURS: [ours], **{name: [other] for name in names}}}


def verdict(case: str, ours: Run, other: Run, row: str) -> bool | None:
    found = routing.rows(taken(case, ours, other), PEERS)
    return next(one.ok for one in found if one.case == f"{case}: {row}")


def test_chats_must_prefill_a_quarter_of_least_load_and_be_even() -> None:
    assert verdict("chats", run(25), run(100), "prefilled, least-load")
    assert not verdict("chats", run(26), run(100), "prefilled, least-load")
    assert verdict("chats", run(), run(), "max/mean load")
    assert not verdict("chats", run(loads=(3, 1)), run(), "max/mean load")


def test_a_heavy_tail_must_halve_round_robins_p99() -> None:
    assert verdict("heavy tail", run(ttft_s=0.5), run(ttft_s=1.0), "TTFT p99, round-robin")
    assert not verdict("heavy tail", run(ttft_s=0.6), run(ttft_s=1.0), "TTFT p99, round-robin")


@pytest.mark.parametrize("peer", PEERS)
def test_every_peer_is_matched_on_every_case(peer: str) -> None:
    for case in ("chats", "mooncake"):
        assert verdict(case, run(), run(), f"prefilled, {peer}")
        assert not verdict(case, run(120), run(100), f"prefilled, {peer}")
        assert not verdict(case, run(ttft_s=0.12), run(ttft_s=0.1), f"TTFT p99, {peer}")
        assert not verdict(case, run(ttft_s=2.0), run(), f"in time, {peer}")


def test_goodput_counts_what_came_in_time() -> None:
    assert run(ttft_s=0.1).goodput_per_s(0.1) == 2.0
    assert run(ttft_s=0.2).goodput_per_s(0.1) == 0.0


def test_a_text_is_as_long_as_asked_and_nobody_elses() -> None:
    assert len(text("a", 1, 37)) == 4 * 37
    assert text("a", 1, 37) == text("a", 1, 40)[: 4 * 37]
    assert text("a", 1, 16) != text("b", 1, 16)


def test_a_peer_gets_all_replicas_and_the_cache_aware_policy(monkeypatch) -> None:
    started = {}

    class Started:
        def __init__(self, launch, log) -> None:
            started[launch.name] = launch.command(8000)

    monkeypatch.setattr("routing_fleet.Unwatched", Started)
    for name in (*PEERS, RULES[0]):
        router(name, ["http://127.0.0.1:1", "http://127.0.0.1:2"])
    for name in PEERS:
        assert started[name][-2:] == ["http://127.0.0.1:1", "http://127.0.0.1:2"]
        assert "cache_aware" in started[name]
    spec = Path(started[RULES[0]][-1]).read_text()
    assert 'urls: ["http://127.0.0.1:1", "http://127.0.0.1:2"]' in spec
    assert "policy: prefix-sticky" in spec


@pytest.fixture
async def replicas() -> AsyncIterator[list[SimpleNamespace]]:
    """Two fakes that answer at once; the first also stands for a router."""
    setup = Setup(name=MODEL, time_scale=0.0)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(FakeReplica(setup)) for _ in range(2)]


async def test_chats_are_played_with_the_answers_that_came(replicas) -> None:
    talks = chats(3, per_s=1000.0, turns=3, system_tokens=64, think_s=0.0)
    played = await play(Case("chats", talks, system_tokens=64), replicas[0], replicas, "salt")
    assert len(played.asked) == 9
    said = sum(talk.turns[-1].prompt_tokens for talk in talks)
    whole = sum(turn.prompt_tokens for talk in talks for turn in talk.turns)
    # Later turns found prompts and answers, but for blocks that were not full.
    assert said * 0.6 < played.prefilled_tokens < said * 1.1 < whole
    assert len(played.loads) == 2


async def test_documents_are_shared_and_other_runs_share_nothing(replicas) -> None:
    talks = heavy_tail(30, per_s=1000.0, most_tokens=2_000, documents=4, answer_tokens=3)
    case = Case("heavy tail", talks)
    first = await play(case, replicas[0], replicas, "first")
    assert first.prefilled_tokens < sum(talk.turns[0].prompt_tokens for talk in talks) / 2
    second = await play(case, replicas[0], replicas, "second")
    assert second.prefilled_tokens == pytest.approx(first.prefilled_tokens, rel=0.5)


async def test_an_answer_that_is_an_error_ends_the_run() -> None:
    setup = Setup(name=MODEL, time_scale=0.0)
    async with FakeReplica(setup, faults=["error,status=500,share=1"]) as broken:
        with pytest.raises(BenchError, match="status 500"):
            await play(Case("c", chats(1, per_s=1000.0, turns=1)), broken, [broken], "s")


def test_an_error_event_is_an_error() -> None:
    with pytest.raises(BenchError, match="ended with an error"):
        routing_load._content(b'data: {"error": {"message": "gone"}}\n')
    assert routing_load._content(b"data: [DONE]\n") == ""


def test_the_rules_bench_runs_every_rule_on_every_load(monkeypatch) -> None:
    small = routing_rules.Load("small", chats(4, per_s=10.0, turns=2))
    monkeypatch.setattr(routing_rules, "loads", lambda *, quick: [small])
    record = routing_rules.measure(quick=True)
    assert len(record.rows) == 4 * len(routing_rules.RULES)
    assert {row.case.split(",")[0] for row in record.rows} == {"small"}


def test_the_guide_prints_what_the_rules_did() -> None:
    """Each cell is prompt tokens, load of the most loaded beside the mean, and p99 of TTFT."""
    docs = Path(__file__).parent.parent / "docs"
    rows = json.loads((docs / "results" / "routing-rules.json").read_text())["rows"]
    found = {row["case"]: row["ours"] for row in rows}
    loads = ("chats, one system prompt", "chats, full", "heavy tail")
    lines = (docs / "guide" / "routing.md").read_text().splitlines()
    table = [line.split(" | ") for line in lines if line.endswith(" ms |")]
    assert len(table) == 6
    for rule, *cells in table:
        for load, cell in zip(loads, cells, strict=True):
            case = f"{load}, {rule.strip('|` ')}"
            tokens, even, ttft = cell.removesuffix(" |").split(" / ")
            assert tokens == f"{found[f'{case}: prefilled']:,.0f}"
            assert even == f"{found[f'{case}: max/mean load']:.2f}"
            assert ttft == f"{found[f'{case}: TTFT p99']:,.0f} ms"
