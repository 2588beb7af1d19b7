"""Batch work on what interactive requests leave over: the gateway's classes, simulated."""

from dataclasses import replace
from itertools import islice

import pytest

from ridgeline.serving.fake.timing import machine
from ridgeline.serving.simulate.clients import ClosedLoop, OpenLoop, Several
from ridgeline.serving.simulate.outcome import Outcome, percentile
from ridgeline.serving.simulate.setup import Engine, Model, Serving, Tenant
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request, parse_arrivals, parse_sizes, synthetic

SLOTS, ROW_TOKENS = 32, 1000
ENGINE = Engine(machine("llama-3.1-8b", "h100-sxm", engine="vllm"), max_seqs=SLOTS)


def asked(count: int = 800) -> list[Request]:
    sizes = (parse_sizes(f"lognormal:{mean}:0.5", where="sizes") for mean in (500, 100))
    drawn = synthetic(parse_arrivals("poisson"), *sizes, rate_per_s=10, seed=1)
    chats = (one for one in drawn if one.prompt_tokens != ROW_TOKENS)
    return [replace(one, tenant="chat") for one in islice(chats, count)]


def run(tenant: str | None) -> Outcome:
    """Chats at 10 a second; where there is a batch, it always has twice what all slots take."""
    serving = Serving(
        (Model("chat", ENGINE, 2, slots=SLOTS, rule="least-load"),),
        (Tenant("chat", "interactive"), Tenant("batch", "bulk")),
    )
    chats = OpenLoop(asked(), "chat")
    if tenant is None:
        return simulate(serving, chats)
    rows = [Request(0.0, ROW_TOKENS, 200, tenant=tenant)] * 2500
    return simulate(serving, Several([chats, ClosedLoop(rows, "chat", 4 * SLOTS)]))


def late_s(outcome: Outcome, share: float) -> float:
    """Of the chats; no prompt of theirs is as long as a row."""
    chats = outcome.columns["prompt_tokens"][outcome.answered] != ROW_TOKENS
    return percentile(outcome.ttft_s()[chats], share)


def test_bulk_takes_what_is_left_and_chats_hardly_notice():
    alone, beside, mixed = run(None), run("batch"), run("chat")
    lasts_s = alone.lasted_s
    done = beside.of(tenant="batch").columns["done_ns"] / 1e9
    assert (done < lasts_s).sum() > 1500, "twice the chats, and ten times their tokens"
    assert late_s(beside, 0.9) < 0.25
    assert late_s(mixed, 0.9) > 4 * late_s(beside, 0.9), "of one tenant they wait in one line"
    assert alone.of(tenant="chat").answered.all()
    assert beside.of(tenant="chat").answered.all()


def test_streams_are_slower_beside_it():
    """Slots are kept for chats; steps are shared."""
    alone, beside = run(None), run("batch")
    slower = beside.of(tenant="chat").tpot_s().mean() / alone.of(tenant="chat").tpot_s().mean()
    assert 1.2 < slower < 2.5
    assert late_s(alone, 0.5) == pytest.approx(0.015, abs=0.01)
