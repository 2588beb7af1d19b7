import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.bench.prompts import CANDIDATES, Prompts, Vocabulary
from ridgeline.workload import Request

TEMPLATE_TOKENS = 5
EXACT = Vocabulary(CANDIDATES, TEMPLATE_TOKENS + 1, exact=True)
SOME = Prompts(EXACT, 11)


def prompt(prompts: Prompts, index: int, tokens: int, blocks: tuple[int, ...] = ()) -> str:
    return prompts.text(index, Request(0.0, tokens, 1, blocks))


class Tokenizer:
    """Counts one token a word, two for some, and a template around it."""

    def __init__(self, *, double: frozenset[str] = frozenset(), merges: bool = False) -> None:
        self.double, self.merges, self.asked = double, merges, 0

    async def count(self, text: str) -> int:
        self.asked += 1
        words = text.split()
        tokens = TEMPLATE_TOKENS + sum(1 + (word in self.double) for word in words)
        return tokens - (len(words) > 100 if self.merges else 0)


async def nothing_known(_: str) -> None:
    return None


async def test_words_of_two_tokens_are_found_and_left_out():
    odd = frozenset(CANDIDATES[10:14])
    tokenizer = Tokenizer(double=odd)
    vocabulary = await Vocabulary.learn(tokenizer.count)
    assert vocabulary.exact
    assert set(vocabulary.words) == set(CANDIDATES) - odd
    assert vocabulary.overhead_tokens == TEMPLATE_TOKENS + 1
    assert tokenizer.asked < 60


async def test_a_plain_tokenizer_is_asked_three_times():
    tokenizer = Tokenizer()
    assert (await Vocabulary.learn(tokenizer.count)).exact
    assert tokenizer.asked == 3


@pytest.mark.parametrize(
    "count",
    [nothing_known, Tokenizer(double=frozenset(CANDIDATES)).count, Tokenizer(merges=True).count],
)
async def test_where_counts_do_not_add_up_sizes_are_called_approximate(count):
    vocabulary = await Vocabulary.learn(count)
    assert not vocabulary.exact
    assert vocabulary.words == CANDIDATES


@given(st.integers(7, 5000), st.integers(0, 10**6))
def test_a_prompt_has_exactly_the_tokens_asked_for(tokens, index):
    text = prompt(SOME, index, tokens)
    assert TEMPLATE_TOKENS + len(text.split()) == tokens


def test_prompts_longer_than_the_ring_are_exact_too():
    assert len(prompt(Prompts(EXACT, 1), 0, 150_000).split()) == 150_000 - TEMPLATE_TOKENS


def test_the_same_seed_writes_the_same_prompts_and_another_one_others():
    texts = [prompt(Prompts(EXACT, seed), 3, 60) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_no_two_prompts_of_a_run_begin_alike():
    prompts = Prompts(EXACT, 1)
    beginnings = {tuple(prompt(prompts, index, 64).split()[:7]) for index in range(2000)}
    assert len(beginnings) == 2000


def test_a_shared_prefix_is_shared_and_no_longer_than_asked():
    prompts = Prompts(EXACT, 1, shared_tokens=40)
    first, second = (prompt(prompts, index, 100).split() for index in (0, 1))
    assert first[:41] == second[:41]
    assert first[41:47] != second[41:47]
    assert len(first) == 100 - TEMPLATE_TOKENS


def test_equal_blocks_of_a_trace_become_equal_text():
    prompts = Prompts(EXACT, 1, block_tokens=16)
    first = prompt(prompts, 0, 6 + 40, (0, 1, 2)).split()
    second = prompt(prompts, 1, 6 + 40, (0, 1, 3)).split()
    assert first[:33] == second[:33]
    assert first[33:39] != second[33:39]
    assert len(first) == len(second) == 41


def test_different_blocks_after_one_prefix_never_begin_alike():
    """As in Mooncake's trace, where every request starts with block 0 and then goes its own way."""
    prompts = Prompts(EXACT, 1, block_tokens=16)
    texts = {
        tuple(prompt(prompts, block, 6 + 32, (0, block)).split()[17:23]) for block in range(1, 4000)
    }
    assert len(texts) == 3999
