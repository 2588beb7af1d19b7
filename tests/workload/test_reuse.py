"""Reuse: what caches could have known, beside a cache that is played through."""

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.workload import Request, read_trace
from ridgeline.workload.reuse import lru_curve, lru_hits, unlimited_hits

#: Of ../shared/data/traces/README.md: the share of prompt tokens by blocks, and without limit.
PUBLISHED = {
    "mooncake_conversation.jsonl.gz": (
        {500: 0.0430, 2000: 0.0547, 5000: 0.1125, 10_000: 0.2153, 20_000: 0.2931, 50_000: 0.3615},
        0.3736,
    ),
    "mooncake_synthetic.jsonl.gz": (
        {500: 0.0418, 2000: 0.1467, 5000: 0.2843, 10_000: 0.4313, 20_000: 0.5819, 50_000: 0.6512},
        0.6512,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_hit_rates_of_public_traces_are_those_published(shared, name):
    by_blocks, unlimited = PUBLISHED[name]
    trace = read_trace(shared / "data/traces" / name)
    curve = lru_curve(trace.requests, trace.block_tokens)
    assert {size: round(curve.share(size), 4) for size in by_blocks} == by_blocks
    assert round(curve.share(), 4) == unlimited
    assert unlimited_hits(trace.requests, trace.block_tokens) == curve.hits()


def played(requests: list[Request], block_tokens: int, room: int) -> int:
    """The same, by a cache that is really kept."""
    cache: OrderedDict[int, None] = OrderedDict()
    tokens = 0
    for one in requests:
        run = 0
        while run < len(one.blocks) and one.blocks[run] in cache:
            run += 1
        tokens += min(run * block_tokens, one.prompt_tokens)
        for block in one.blocks:
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > room:
            cache.popitem(last=False)
    return tokens


prompts = st.builds(
    lambda blocks, short: Request(0.0, max(1, len(blocks) * 16 - short), 1, tuple(blocks)),
    st.lists(st.integers(0, 12), max_size=8, unique=True),
    st.integers(0, 40),
)


@given(st.lists(prompts, max_size=30), st.integers(0, 14))
def test_every_size_finds_what_a_cache_of_that_size_would(requests, room):
    assert lru_hits(requests, 16, room) == played(requests, 16, room)


@given(st.lists(prompts, max_size=30))
def test_more_room_never_finds_less_and_no_limit_is_the_bound(requests):
    found = [lru_hits(requests, 16, room) for room in range(15)]
    assert found == sorted(found)
    assert found[-1] <= unlimited_hits(requests, 16) == lru_curve(requests, 16).hits()


def test_nothing_asked_is_nothing_found():
    assert lru_curve([], 16).share() == 0.0
    assert lru_hits([Request(0.0, 5, 5)], 16, 10) == 0
