"""The block book never leaks, never frees twice, and finds only what was really written."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ridgeline.serving.policy.blocks import BlockBook, Copy

SIZE = 4


def chain(text: bytes, size: int = SIZE) -> list[bytes]:
    """Perfect chained hashes of a text's full blocks: each is the whole prefix itself."""
    return [text[:end] for end in range(size, len(text) + 1, size)]


class Paper:
    """Plays the engine: writes each token into its block, and reads back what it wrote."""

    def __init__(self, book: BlockBook) -> None:
        self.book = book
        self.memory = [bytearray(b"?" * book.block_size) for _ in range(book.blocks)]
        self.texts: dict[str, bytes] = {}
        self.copies = 0

    def open(self, name: str, text: bytes) -> bool:
        hashes = chain(text, self.book.block_size)
        free, cached = self.book.free, self.book.cached(hashes)
        found = self.book.open(name, len(text), hashes)
        if found is None:
            assert self.book.free == free
            assert self.book.blocks_for(len(text)) > free - cached
            return False
        assert found == min(cached, (len(text) - 1) // self.book.block_size)
        self.texts[name] = text[: found * self.book.block_size]
        self.read(name)
        for token in text[found * self.book.block_size :]:
            self._write(name, token)
        return True

    def append(self, name: str, token: int) -> bool:
        position = len(self.texts[name])
        lacking = self.book.lacking(name, position, position + 1)
        if lacking > self.book.free:
            return False
        free = self.book.free
        assert self.book.grow(name, position + 1)
        copy = self.book.own(name, position)
        if copy:
            self.memory[copy.target][:] = self.memory[copy.source]
            self.copies += 1
        assert self.book.free == free - lacking
        self._write(name, token)
        return True

    def fork(self, parent: str, child: str) -> None:
        self.book.fork(parent, child)
        self.texts[child] = self.texts[parent]

    def close(self, name: str) -> None:
        self.read(name)
        self.book.close(name)
        del self.texts[name]

    def read(self, name: str) -> None:
        table = self.book.table(name)
        there = b"".join(bytes(self.memory[block]) for block in table)
        assert there.startswith(self.texts[name]), f"{name} reads {there!r}"

    def check(self) -> None:
        self.book.check()
        for digest in self.book._carriers:  # every prefix of what is found is found as well
            assert self.book.cached(chain(digest, self.book.block_size)) * self.book.block_size == (
                len(digest)
            )

    def _write(self, name: str, token: int) -> None:
        size, table, text = self.book.block_size, self.book.table(name), self.texts[name]
        self.memory[table[len(text) // size]][len(text) % size] = token
        self.texts[name] = text = text + bytes([token])
        if len(text) % size == 0:
            self.book.seal(name, len(text) // size - 1, text)


def opened(book: BlockBook, name: str, text: bytes) -> BlockBook:
    """`book` with one more sequence, computed and sealed."""
    assert Paper(book).open(name, text)
    return book


def test_a_sequence_gets_room_for_its_tokens_and_gives_it_back() -> None:
    book = BlockBook(8, SIZE)
    assert book.open("a", 9) == 0
    assert (len(book.table("a")), book.used, book.free, book.usage) == (3, 3, 5, 3 / 8)
    assert book.grow("a", 12)
    assert len(book.table("a")) == 3
    assert book.grow("a", 13)
    assert len(book.table("a")) == 4
    book.close("a")
    assert (book.used, book.free, book.usage) == (0, 8, 0.0)
    book.check()


def test_room_is_given_whole_or_not_at_all() -> None:
    book = opened(BlockBook(4, SIZE), "a", b"aaaabbbbc")
    assert not book.grow("a", 17)
    assert len(book.table("a")) == 3
    assert book.open("b", 5) is None
    assert book.open("c", 13, chain(b"aaaabbbbcccc")) is None, "2 blocks are shared, 2 lack"
    assert book.free == 1
    assert book.open("d", 12, chain(b"aaaabbbb")) == 2
    book.check()


def test_cached_blocks_that_nobody_holds_are_not_counted_as_room_twice() -> None:
    book = opened(BlockBook(3, SIZE), "a", b"aaaabbbb")
    book.close("a")
    assert book.free == 3
    assert book.open("b", 13, chain(b"aaaabbbb")) is None
    assert book.open("b", 12, chain(b"aaaabbbb")) == 2
    book.check()


@pytest.mark.parametrize(
    ("tokens", "found"), [(1, 0), (4, 0), (5, 1), (8, 1), (9, 2), (12, 2), (13, 3)]
)
def test_a_hit_leaves_at_least_the_last_token_to_compute(tokens: int, found: int) -> None:
    text = b"aaaabbbbcccc"
    book = opened(BlockBook(8, SIZE), "a", text)
    assert book.open("b", tokens, chain(text)) == found


def test_a_closed_sequence_is_found_until_its_blocks_are_needed() -> None:
    book = opened(BlockBook(4, SIZE), "a", b"aaaabbbb")
    book.close("a")
    assert book.cached(chain(b"aaaabbbb")) == 2
    assert book.open("b", 8) == 0, "blank blocks go first"
    assert book.cached(chain(b"aaaabbbb")) == 2
    assert book.open("c", 4) == 0
    assert book.cached(chain(b"aaaabbbb")) == 1, "the child goes before its parent"
    book.check()


def test_the_longest_unused_prefix_goes_first() -> None:
    book = opened(opened(BlockBook(2, SIZE), "old", b"aaaa"), "new", b"bbbb")
    book.close("old")
    book.close("new")
    assert book.open("again", 5, chain(b"aaaa")) == 1
    assert book.cached([b"bbbb"]) == 0, "its second block came from the one unused longest"
    book.close("again")
    assert book.cached([b"aaaa"]) == 1


def test_a_hash_stays_found_while_any_sequence_holds_its_content() -> None:
    book = BlockBook(4, SIZE)
    for name in ("first", "second"):  # both compute the same, neither found the other's
        book.open(name, 4)
    book.seal("first", 0, b"aaaa")
    book.seal("second", 0, b"aaaa")
    first, second = book.table("first")[0], book.table("second")[0]
    assert book.open("third", 5, [b"aaaa"]) == 1
    assert book.table("third")[0] == first, "the first to be sealed is the one found"
    book.close("third")
    book.close("first")
    book.check()
    assert book.open("fourth", 5, [b"aaaa"]) == 1
    assert book.table("fourth")[0] == second
    book.check()


def test_a_block_in_use_takes_the_hash_over_from_an_unused_one() -> None:
    book = opened(BlockBook(2, SIZE), "old", b"aaaa")
    book.close("old")
    book.open("new", 4)
    book.seal("new", 0, b"aaaa")
    book.check()
    assert book.open("other", 4) == 0
    assert book.cached([b"aaaa"]) == 1, "the other one's block was the unused copy"


@pytest.mark.proves("S149")
def test_a_fork_copies_exactly_one_block_on_its_first_write() -> None:
    book = BlockBook(8, SIZE)
    paper = Paper(book)
    paper.open("parent", b"aaaabbbbcc")
    paper.fork("parent", "child")
    assert book.used == 3, "nothing is copied by the fork itself"
    before = book.table("parent").copy()
    assert book.grow("child", 11)
    copy = book.own("child", 10)
    assert copy == Copy(before[2], book.table("child")[2])
    assert book.table("parent") == before
    assert book.table("child")[:2] == before[:2]
    assert book.used == 4
    assert book.own("parent", 10) is None, "the last holder writes in place"
    assert book.own("child", 10) is None
    book.check()


def test_a_fork_at_a_blocks_edge_copies_nothing() -> None:
    book = opened(BlockBook(8, SIZE), "parent", b"aaaabbbb")
    book.fork("parent", "child")
    for name in ("parent", "child"):
        assert book.grow(name, 9)
        assert book.own(name, 8) is None
    assert book.used == 4
    book.check()


def test_a_shrunk_sequence_keeps_the_blocks_of_its_tokens_and_leaves_shared_ones_to_others() -> (
    None
):
    book = opened(BlockBook(8, SIZE), "a", b"abcdef")
    book.fork("a", "b")
    assert book.grow("b", 12)
    assert (len(book.table("b")), book.used) == (3, 3)
    book.shrink("b", 5)
    assert (len(book.table("b")), book.used) == (2, 2)
    book.shrink("b", 4)
    assert (len(book.table("b")), book.used) == (1, 2), "a has the second"
    book.check()


def test_without_caching_nothing_is_found_and_forks_still_share() -> None:
    book = BlockBook(8, SIZE, caching=False)
    book.open("a", 8)
    book.seal("a", 0, b"aaaa")
    assert book.cached([b"aaaa"]) == 0
    book.fork("a", "b")
    assert book.used == 2
    book.close("a")
    book.close("b")
    assert book.free == 8
    book.check()


@pytest.mark.parametrize(("blocks", "size"), [(0, 16), (16, 0), (-1, 4)])
def test_a_book_without_room_is_refused(blocks: int, size: int) -> None:
    with pytest.raises(ValueError, match="hold nothing"):
        BlockBook(blocks, size)


def test_a_name_that_is_open_cannot_be_opened_or_forked_into() -> None:
    book = opened(BlockBook(8, SIZE), "a", b"aaaa")
    with pytest.raises(ValueError, match="open already"):
        book.open("a", 4)
    with pytest.raises(ValueError, match="open already"):
        book.fork("a", "a")
    with pytest.raises(KeyError):
        book.close("unknown")


def test_writing_into_a_sealed_block_is_our_own_mistake() -> None:
    book = opened(BlockBook(8, SIZE), "a", b"aaaabb")
    with pytest.raises(AssertionError, match="sealed"):
        book.own("a", 3)


DAMAGE: dict[str, Callable[[BlockBook], object]] = {
    "a reference too many": lambda book: book._references.__setitem__(book.table("a")[0], 2),
    "a leak": lambda book: book._blank.pop(),
    "a double free": lambda book: book._blank.append(book._blank[0]),
    "free while held": lambda book: book._blank.append(book.table("a")[0]),
    "idle without a hash": lambda book: book._idle.__setitem__(book._blank.pop(), None),
    "found by a foreign hash": lambda book: book._carriers.__setitem__(b"x", book.table("a")[0]),
    "a twin that is none": lambda book: book._twins.__setitem__(b"aaaa", book.table("a")[:1]),
    "a blank block with a hash": lambda book: book._hashes.__setitem__(book._blank[0], b"x"),
    "a block held twice": lambda book: book.table("a").append(book.table("a")[0]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_check_sees(damage: str) -> None:
    book = opened(BlockBook(8, SIZE), "a", b"aaaabb")
    book.check()
    DAMAGE[damage](book)
    with pytest.raises((AssertionError, KeyError)):
        book.check()


class AnyOrder(RuleBasedStateMachine):
    """Any order of operations on a small book with texts that often agree."""

    def __init__(self) -> None:
        super().__init__()
        self.paper = Paper(BlockBook(7, 2))
        self.births = 0

    def pick(self, choice: int) -> str | None:
        names = sorted(self.paper.texts)
        return names[choice % len(names)] if names else None

    def name(self) -> str:
        self.births += 1
        return f"s{self.births}"

    @rule(text=st.lists(st.sampled_from(b"ab"), min_size=1, max_size=10).map(bytes))
    def open(self, text: bytes) -> None:
        self.paper.open(self.name(), text)

    @rule(choice=st.integers(0, 99), token=st.sampled_from(b"ab"))
    def append(self, choice: int, token: int) -> None:
        if name := self.pick(choice):
            self.paper.append(name, token)

    @rule(choice=st.integers(0, 99))
    def fork(self, choice: int) -> None:
        if name := self.pick(choice):
            self.paper.fork(name, self.name())

    @rule(choice=st.integers(0, 99), tokens=st.integers(0, 6))
    def guess_in_vain(self, choice: int, tokens: int) -> None:
        if name := self.pick(choice):
            book, known = self.paper.book, len(self.paper.texts[name])
            free, table = book.free, book.table(name).copy()
            book.grow(name, known + tokens)
            book.shrink(name, known)
            assert (book.free, book.table(name)) == (free, table)

    @rule(choice=st.integers(0, 99))
    def close(self, choice: int) -> None:
        if name := self.pick(choice):
            self.paper.close(name)

    @invariant()
    def everything_adds_up(self) -> None:
        self.paper.check()
        for name in self.paper.texts:
            self.paper.read(name)

    def teardown(self) -> None:
        for name in list(self.paper.texts):
            self.paper.close(name)
        assert self.paper.book.used == 0


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase


def drive(operations: int, seed: int) -> Paper:
    """So many random operations, checked all along, on a book that is often full."""
    chance = random.Random(seed)
    paper = Paper(BlockBook(48, SIZE))
    for number in range(operations):
        names = list(paper.texts)
        name = chance.choice(names) if names else ""
        draw = chance.random()
        if not names or draw < 0.15:
            length = chance.randint(1, 30)
            paper.open(f"s{number}", bytes(chance.choices(b"ab", (9, 1), k=length)))
        elif draw < 0.8:
            if not paper.append(name, chance.choice(b"ab")) or len(paper.texts[name]) > 60:
                paper.close(name)
        elif draw < 0.85:
            paper.fork(name, f"s{number}")
        else:
            paper.close(name)
        if number % 50 == 0:
            paper.check()
    return paper


def assert_no_leak(operations: int) -> None:
    paper = drive(operations, seed=149)
    assert paper.copies > operations / 500, "forks were really written to"
    for name in list(paper.texts):
        paper.close(name)
    paper.check()
    assert paper.book.used == 0


@pytest.mark.proves("S149")
def test_fifty_thousand_random_operations_leak_nothing() -> None:
    assert_no_leak(50_000)


@pytest.mark.slow
@pytest.mark.proves("S149")
def test_a_million_random_operations_leak_nothing() -> None:
    assert_no_leak(1_000_000)


def waste_tokens(book: BlockBook, lengths: range) -> float:
    """Mean tokens of room that a sequence holds and does not fill."""
    for length in lengths:
        assert book.open(f"of {length}", length) == 0
    return (book.used * book.block_size - sum(lengths)) / len(lengths)


@pytest.mark.proves("S149")
def test_a_sequence_of_about_two_thousand_tokens_wastes_seven_and_a_half() -> None:
    lengths = range(1_600, 2_400)
    waste = waste_tokens(BlockBook(800 * 150, 16), lengths)
    assert waste == 7.5
    assert round(waste / 2_000, 3) == 0.004


@pytest.mark.proves("S176")
def test_reserving_wastes_three_quarters_and_paging_one_and_a_half_per_cent() -> None:
    reserved = BlockBook(1, 2_048)
    assert reserved.open("a", 500) == 0
    used_share = 500 / (reserved.used * reserved.block_size)
    assert round(1 - used_share, 2) == 0.76
    waste = waste_tokens(BlockBook(200 * 40, 16), range(404, 596))
    assert waste == 7.5
    assert waste / 500 == 0.015


def test_what_gives_way_is_told_and_comes_back_by_restore():
    book, gone = BlockBook(3, 4), []
    book.on_evict = gone.append
    beginning = [b"0", b"1", b"2"]
    book.open("a", 12)
    for index, digest in enumerate(beginning):
        book.seal("a", index, digest)
    book.close("a")
    book.open("b", 8)
    assert gone == [b"2", b"1"], "the end of a beginning goes first"
    assert book.restore(beginning) == 0, "no room but the beginning's own"
    book.close("b")
    assert book.restore(beginning) == 2
    assert book.cached(beginning) == 3
    book.check()
    book.open("c", 8)
    assert book.cached(beginning) == 1, "it gives way from its end, as before"


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6), st.booleans()), max_size=30),
    st.integers(2, 8),
)
def test_a_book_that_restores_is_a_book(told, blocks):
    book, gone = BlockBook(blocks, 1), set()
    book.on_evict = gone.add
    for number, (family, tokens, restores) in enumerate(told):
        hashes = [b"%d.%d" % (family, place) for place in range(tokens)]
        if restores:
            before = book.cached(hashes)
            free = book.free
            restored = book.restore(hashes)
            assert book.cached(hashes) == before + restored
            assert book.free == free, "what is restored is idle"
        elif (found := book.open(f"s{number}", tokens, hashes)) is not None:
            for place in range(found, tokens):
                book.seal(f"s{number}", place, hashes[place])
            if number % 3:
                book.close(f"s{number}")
        book.check()
