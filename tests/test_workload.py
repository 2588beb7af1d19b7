import gzip
import json
import lzma
import math
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import SpecError
from ridgeline.workload import (
    Arrivals,
    Request,
    Sizes,
    parse_arrivals,
    parse_sizes,
    read_trace,
    sized,
    synthetic,
)

POISSON = Arrivals("Poisson", 1.0)


def first(count: int, prompt: str, output: str, *, seed: int, rate: float = 2.0) -> list[Request]:
    sizes = (parse_sizes(text, where="") for text in (prompt, output))
    return list(islice(synthetic(POISSON, *sizes, rate_per_s=rate, seed=seed), count))


def test_the_same_seed_gives_the_same_requests():
    assert first(300, "normal:128:32", "64", seed=7) == first(300, "normal:128:32", "64", seed=7)


def test_another_seed_gives_other_arrivals():
    assert first(5, "128", "64", seed=7) != first(5, "128", "64", seed=8)


def test_changing_sizes_leaves_arrivals_as_they_were():
    times = [[r.at_s for r in first(50, prompt, "64", seed=1)] for prompt in ("9", "uniform:1:99")]
    assert times[0] == times[1]


def test_a_faster_rate_is_the_same_pattern_in_less_time():
    slow, fast = first(50, "1", "1", seed=1, rate=1.0), first(50, "1", "1", seed=1, rate=4.0)
    assert [r.at_s / 4 for r in slow] == pytest.approx([r.at_s for r in fast])


@given(st.floats(0.05, 5), st.floats(0.1, 100), st.integers(0, 2**31))
def test_times_never_run_backwards(cv, rate, seed):
    times = list(islice(Arrivals("any", cv).times_s(rate, seed), 200))
    assert all(later >= earlier >= 0 for earlier, later in pairwise(times))


@pytest.mark.parametrize("text", ["poisson", "gamma:0.5", "gamma:3", "uniform"])
def test_gaps_have_the_mean_and_the_variation_asked_for(text):
    arrivals = parse_arrivals(text)
    gaps = np.diff(list(islice(arrivals.times_s(5.0, 3), 40_000)))
    assert gaps.mean() == pytest.approx(0.2, rel=0.06)
    assert gaps.std() / gaps.mean() == pytest.approx(arrivals.cv, rel=0.06, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "mean", "deviation"),
    [
        ("128", 128, 0),
        ("uniform:64:256", 160, 55.7),
        ("normal:500:50", 500, 50),
        ("lognormal:512:1.5", 512, 768),
    ],
)
def test_sizes_have_the_mean_and_the_deviation_asked_for(text, mean, deviation):
    drawn = list(islice(parse_sizes(text, where="").draw(np.random.default_rng(5)), 60_000))
    assert np.mean(drawn) == pytest.approx(mean, rel=0.03)
    assert np.std(drawn) == pytest.approx(deviation, rel=0.1, abs=1e-6)


@given(st.floats(1, 100), st.floats(0, 500), st.integers(0, 2**31))
def test_no_size_is_below_one(mean, deviation, seed):
    sizes = Sizes("normal", mean, deviation).draw(np.random.default_rng(seed))
    assert min(islice(sizes, 500)) >= 1


@pytest.mark.parametrize("text", ["128", "uniform:64:256", "normal:500:50", "lognormal:512:1.5"])
def test_sizes_print_as_they_are_written(text):
    assert str(parse_sizes(text, where="")) == text


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "1.5", "nan", "uniform:9:1", "normal:5", "zipf:1:2", "normal:inf:2"]
)
def test_bad_sizes_are_refused_with_a_remedy(text):
    with pytest.raises(SpecError, match="--prompt-tokens"):
        parse_sizes(text, where="--prompt-tokens")


@pytest.mark.parametrize("text", ["", "gamma", "gamma:0", "gamma:x", "poisson:2", "weibull:1"])
def test_bad_arrivals_are_refused_with_a_remedy(text):
    with pytest.raises(SpecError, match="gamma:2"):
        parse_arrivals(text)


def test_a_closed_loop_needs_sizes_only():
    requests = list(islice(sized(Sizes("fixed", 3), Sizes("fixed", 4), seed=0), 2))
    assert requests == [Request(0.0, 3, 4)] * 2


def written(path: Path, text: str) -> Path:
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".xz":
        data = lzma.compress(data)
    path.write_bytes(data)
    return path


AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,0
"""


@pytest.mark.parametrize("name", ["azure.csv", "azure.csv.gz", "azure.csv.xz"])
def test_azure_rows_are_read_from_plain_and_packed_files(tmp_path, name):
    trace = read_trace(written(tmp_path / name, AZURE))
    assert [(r.prompt_tokens, r.output_tokens) for r in trace.requests] == [(374, 44), (396, 109)]
    assert [r.at_s for r in trace.requests] == pytest.approx([0.0, 4.314579], abs=2e-6)
    assert trace.notes == ("1 rows without prompt or output left out",)


def test_speed_and_limit_shorten_a_trace(tmp_path):
    trace = read_trace(written(tmp_path / "azure.csv", AZURE), speed=2.0, limit=2)
    assert [r.at_s for r in trace.requests] == pytest.approx([0.0, 4.314579 / 2], abs=2e-6)
    assert trace.notes == ()


def jsonl(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def mooncake(at_ms: int, blocks: list[int]) -> dict[str, object]:
    return {"timestamp": at_ms, "input_length": 600, "output_length": 5, "hash_ids": blocks}


def test_requests_of_one_coarse_tick_are_spread_over_it_and_told(tmp_path):
    rows = [mooncake(at_ms, [0, at_ms]) for at_ms in (0, 0, 0, 3000, 9000, 9000)]
    trace = read_trace(written(tmp_path / "m.jsonl", jsonl(*rows)))
    assert [r.at_s for r in trace.requests] == [0.0, 1.0, 2.0, 3.0, 9.0, 10.5]
    assert trace.block_tokens == 512
    assert "coarse clock" in trace.notes[0]


def test_requests_of_one_fine_tick_are_left_together(tmp_path):
    rows = [mooncake(at_ms, [0]) for at_ms in (0, 0, 40)]
    trace = read_trace(written(tmp_path / "m.jsonl", jsonl(*rows)))
    assert [r.at_s for r in trace.requests] == [0.0, 0.0, 0.04]
    assert trace.notes == ()


def test_blocks_hashed_alone_are_chained_so_that_equal_ids_mean_equal_prefixes(tmp_path):
    rows = [
        {"chat_id": 1, "timestamp": at, "input_length": 48, "output_length": 5, "hash_ids": blocks}
        for at, blocks in ((0.0, [7, 8]), (0.1, [9, 8]), (0.2, [7, 8, 9]))
    ]
    first, second, third = read_trace(written(tmp_path / "q.jsonl", jsonl(*rows))).requests
    assert third.blocks[:2] == first.blocks
    assert second.blocks[1] != first.blocks[1]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("empty.csv", "", "is empty"),
        ("other.csv", "a,b\n1,2\n", "no known layout"),
        ("torn.csv", AZURE + "yesterday,1,2\n", "row 4"),
        ("torn.jsonl", "{}\nnonsense\n", "no known layout"),
        ("list.jsonl", "[1]\n", "row 1"),
        ("none.csv", "num_prefill_tokens,num_decode_tokens\n0,0\n", "holds no requests"),
    ],
)
def test_files_that_are_no_trace_are_refused_by_name_and_row(tmp_path, name, text, said):
    with pytest.raises(SpecError, match=said):
        read_trace(written(tmp_path / name, text))


def test_missing_and_torn_archives_are_refused(tmp_path):
    with pytest.raises(SpecError, match="cannot be read"):
        read_trace(tmp_path / "absent.csv.gz")
    torn = written(tmp_path / "torn.csv.gz", AZURE)
    torn.write_bytes(torn.read_bytes()[:40])
    with pytest.raises(SpecError, match="cannot be read"):
        read_trace(torn)


PUBLISHED = {
    # file: rows, seconds, mean prompt and output tokens, coefficient of variation of the gaps
    "azure2023_code.csv.gz": (8819, 3436, 2048, 28, 13.15),
    "azure2023_conv.csv.gz": (19366, 3502, 1155, 211, 1.09),
    "mooncake_synthetic.jsonl.gz": (3993, 1022, 15325, 149, 1.01),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_public_traces_have_the_statistics_published_with_them(shared, name):
    rows, seconds, prompt, output, cv = PUBLISHED[name]
    requests = read_trace(shared / "data/traces" / name).requests
    gaps = np.diff([r.at_s for r in requests])
    assert len(requests) == rows
    assert requests[-1].at_s == pytest.approx(seconds, abs=1)
    assert np.mean([r.prompt_tokens for r in requests]) == pytest.approx(prompt, abs=0.5)
    assert np.mean([r.output_tokens for r in requests]) == pytest.approx(output, abs=0.5)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.01)


def test_spreading_mooncakes_ticks_takes_the_artefact_out_of_its_arrivals(shared):
    trace = read_trace(shared / "data/traces/mooncake_conversation.jsonl.gz")
    gaps = np.diff([r.at_s for r in trace.requests])
    assert len(trace.requests) == 12_031
    assert gaps.std() / gaps.mean() < 1.5 < 3.03  # the README's figure for the ticks as recorded
    assert math.isclose(gaps.mean() * 12_030, 3539.6, rel_tol=0.01)


def test_lengths_without_arrivals_say_so(shared):
    trace = read_trace(shared / "data/traces/arxiv_summarization_lengths.csv.gz", limit=10)
    assert not trace.timed
    assert trace.requests[0] == Request(0.0, 3772, 54)
