"""What traces are like."""

import numpy as np
import pytest

from ridgeline.workload import Request, Trace, read_trace
from ridgeline.workload.statistics import statistics, too_long


def trace(requests, **more):
    return Trace("t", tuple(requests), more.pop("block_tokens", 0), timed=True, **more)


def test_a_poisson_trace_has_the_bursts_of_one_and_a_burst_has_more():
    times = np.cumsum(np.random.default_rng(1).exponential(0.1, 50_000)).tolist()
    steady = statistics(trace(Request(at_s, 10, 1) for at_s in times)).rate
    bursts = statistics(trace(Request(at_s // 60 * 60, 10, 1) for at_s in times)).rate
    assert steady.per_s == pytest.approx(10, rel=0.02)
    assert (steady.cv, steady.dispersion) == (pytest.approx(1, rel=0.02), pytest.approx(1, rel=0.3))
    assert bursts.cv > 10
    assert bursts.worst_second > 500
    assert sum(steady.pieces_per_s) / 24 == pytest.approx(steady.per_s)


def test_counts_differ_where_the_rate_does():
    times = [n / 10 for n in range(6000)] + [600 + n / 100 for n in range(60_000)]
    assert statistics(trace(Request(at_s, 10, 1) for at_s in times)).rate.dispersion > 1000


def test_who_asked_and_how_often_they_went_on():
    asked = [
        Request(float(n), 10 * n + 10, n + 1, tenant="ab"[n % 2], session="s" if n < 3 else "",
                model="m")
        for n in range(10)
    ]  # fmt: skip
    told = statistics(trace(asked, notes=("told",)))
    assert told.tenants == {"a": 5, "b": 5}
    assert told.models == {"m": 10}
    assert (told.sessions, told.turns.mean, told.turns.most) == (1, 3.0, 3.0)
    assert (told.prompt_tokens.p50, told.prompt_tokens.most) == (50.0, 100.0)
    assert told.notes == ("told",)
    assert told.reuse is None


def test_reuse_is_told_by_the_size_of_the_cache():
    blocks = [(1, 2), (3, 4), (1, 2), (1, 2, 5)]
    asked = [Request(float(n), len(one) * 16, 1, one) for n, one in enumerate(blocks)]
    told = statistics(trace(asked, block_tokens=16)).reuse
    assert told.unlimited == pytest.approx(4 / 9)
    assert dict(told.by_blocks) == {1: 0.0, 2: pytest.approx(2 / 9), 4: pytest.approx(4 / 9)}
    assert told.distinct_blocks == 5


def test_short_traces_have_no_rate():
    for times in ([0.0], [0.0, 1.0], [0.0, 0.0, 0.0]):
        assert statistics(trace(Request(at_s, 1, 1) for at_s in times)).rate is None


def test_what_is_too_long_is_counted_with_its_answer():
    assert too_long(trace([Request(0.0, 90, 10), Request(0.0, 90, 11)]), 100) == 1


PUBLISHED = {
    # file: rows, seconds, mean prompt and output tokens, coefficient of variation of the gaps
    "azure2023_code.csv.gz": (8819, 3436, 2048, 28, 13.15),
    "azure2023_conv.csv.gz": (19366, 3502, 1155, 211, 1.09),
    "mooncake_synthetic.jsonl.gz": (3993, 1022, 15325, 149, 1.01),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_public_traces_have_the_statistics_published_with_them(shared, name):
    rows, seconds, prompt, output, cv = PUBLISHED[name]
    told = statistics(read_trace(shared / "data/traces" / name))
    assert told.requests == rows
    assert told.duration_s == pytest.approx(seconds, abs=1)
    assert told.prompt_tokens.mean == pytest.approx(prompt, abs=0.5)
    assert told.output_tokens.mean == pytest.approx(output, abs=0.5)
    assert told.rate.cv == pytest.approx(cv, abs=0.01)


def test_spreading_mooncakes_ticks_takes_the_artefact_out_of_its_arrivals(shared):
    told = statistics(read_trace(shared / "data/traces/mooncake_conversation.jsonl.gz"))
    assert told.requests == 12_031
    assert told.rate.cv == pytest.approx(1.0, abs=0.05)  # as recorded: 3.03
    assert told.rate.per_s == pytest.approx(12_030 / 3539.6, rel=0.01)
