"""The prefix index: finds what was sent, forgets the oldest, stays small."""

import tracemalloc
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.prefix import PrefixIndex


def chain(*letters: int) -> list[int]:
    """Chained hashes: each names all letters up to it."""
    hashes, seen = [], 0
    for letter in letters:
        seen = seen * 5 + letter + 1
        hashes.append(seen)
    return hashes


prompts = st.lists(st.integers(0, 3), min_size=1, max_size=8).map(lambda letters: chain(*letters))
records = st.lists(st.tuples(st.sampled_from(["a", "b"]), prompts), max_size=60)


@given(records, prompts, st.integers(1, 20))
def test_it_finds_what_a_plain_search_of_each_recency_list_finds(done, asked, most) -> None:
    """The bisection is exact: whoever has a block has all blocks before it."""
    index, plain = PrefixIndex(most), {"a": OrderedDict(), "b": OrderedDict()}
    for replica, blocks in done:
        index.record(replica, blocks)
        for block in reversed(blocks):
            plain[replica].pop(block, None)
            plain[replica][block] = None
        while len(plain[replica]) > most:
            plain[replica].popitem(last=False)
    for replica, recent in plain.items():
        leading = next((n for n, block in enumerate(asked) if block not in recent), len(asked))
        assert index.match(asked).get(replica, 0) == leading
        inside = sum(block in recent for block in asked)
        assert inside == leading, "no block is known without those before it"


@given(records, st.integers(1, 20))
def test_it_never_holds_more_than_each_replica_does(done, most) -> None:
    index = PrefixIndex(most)
    for replica, blocks in done:
        index.record(replica, blocks)
        assert len(index) <= 2 * most


def test_a_longer_prompt_finds_the_shorter_one_where_it_was_sent() -> None:
    index = PrefixIndex()
    index.record("a", chain(1, 2, 3))
    index.record("b", chain(1))
    assert index.match(chain(1, 2, 3, 0, 0)) == {"a": 3, "b": 1}
    assert index.match(chain(2)) == {}
    assert index.match([]) == {}


def test_a_prompt_longer_than_a_cache_leaves_its_beginning() -> None:
    index = PrefixIndex(2)
    index.record("a", chain(1, 2, 3, 0))
    assert index.match(chain(1, 2, 3, 0)) == {"a": 2}


def test_a_conversations_next_turn_is_told_from_prompts_that_only_begin_alike() -> None:
    index = PrefixIndex()
    index.record("a", chain(1, 1, 2))
    assert index.continues(chain(1, 1, 2, 3, 0)), "the turn before is known to its end"
    assert index.continues(chain(1, 1, 2)), "so is the same prompt"
    assert not index.continues(chain(1, 1, 3)), "somebody went on elsewhere"
    index.record("a", chain(1, 1, 2, 3, 0))
    assert not index.continues(chain(1, 1, 2, 0)), "that turn was said otherwise"
    assert not index.continues(chain(2))
    assert not index.continues([])


def test_where_several_have_a_part_the_one_with_most_says_whether_it_goes_on() -> None:
    index = PrefixIndex()
    index.record("a", chain(1, 1))
    index.record("b", chain(1, 1, 2))
    index.record("b", chain(1, 1, 3))
    assert index.continues(chain(1, 1, 2, 0))
    assert not index.continues(chain(1, 1, 0, 0)), "on b others went on from there"


def test_warm_tokens_are_the_found_share_of_the_prompt() -> None:
    index = PrefixIndex()
    index.record("a", chain(1, 2))
    assert index.warm_tokens(chain(1, 2, 3), 1000, 3.5) == {"a": 571}
    assert index.warm_tokens(chain(1, 2), 30, 1.9) == {"a": 30}, "never more than the prompt"


def test_a_smaller_cache_forgets_at_once_and_a_gone_replica_altogether() -> None:
    index = PrefixIndex()
    index.record("a", chain(1, 2, 3))
    index.record("b", chain(1, 2, 3))
    index.resize("a", 1)
    assert index.match(chain(1, 2, 3)) == {"a": 1, "b": 3}
    index.remove("b")
    index.remove("never there")
    assert index.match(chain(1, 2, 3)) == {"a": 1}
    assert len(index) == 1


def test_an_index_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="remembers nothing"):
        PrefixIndex(0)


def test_memory_is_flat_over_unique_prompts() -> None:
    """A hundred thousand unique prefixes, ten times what the replicas' caches hold."""
    index = PrefixIndex(1_000)
    record = index.record
    number = 1 << 60  # as large as real hashes: small integers cost less

    def unique(prompts: int) -> None:
        nonlocal number
        for _ in range(prompts):
            number += 2
            record(f"r{number % 5}", [number, number + 1])

    unique(5_000)
    tracemalloc.start()
    unique(1_000)
    early, _ = tracemalloc.get_traced_memory()
    unique(100_000)
    late, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(index) == 5 * 1_000
    assert late < 5_000 * 200
    assert peak < 5_000 * 200
    assert early < 5_000 * 200
