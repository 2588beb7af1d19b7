"""Any mix of requests on one batcher, played with every token on paper: for tests of its laws."""

import random
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from ridgeline.serving.policy.batch import Batcher, Chunk, Limits, Step
from ridgeline.serving.policy.blocks import BlockBook

SIZE = 4


@dataclass(frozen=True, slots=True)
class Request:
    """What a test asks for. Equal `text`s agree in every token, so they share prefixes."""

    arrives: int
    prompt: int
    most: int
    text: int
    priority: int = 0
    forks: int = 0
    leaves: int | None = None  # aborted so many steps after its arrival


@dataclass(frozen=True, slots=True)
class House:
    """The sizes of an engine."""

    blocks: int
    seqs: int
    budget: int
    caching: bool = True
    guesses: int = 0  # at most so many for each sequence


HOUSES = st.builds(
    lambda blocks, seqs, spare, caching, guesses: House(
        blocks, seqs, seqs + spare, caching, guesses
    ),
    st.integers(4, 12),
    st.integers(1, 6),
    st.integers(0, 12),
    st.booleans(),
    st.sampled_from([0, 0, 2, 6]),
)
REQUESTS = st.lists(
    st.builds(
        Request,
        arrives=st.integers(0, 12),
        prompt=st.integers(1, 10),
        most=st.integers(1, 6),
        text=st.integers(0, 2),
        priority=st.integers(0, 1),
        forks=st.sampled_from([0, 0, 0, 1, 3]),
        leaves=st.sampled_from([None, None, None, 0, 3, 7]),
    ),
    min_size=1,
    max_size=10,
)


@dataclass(slots=True)
class Line:
    """A sequence as its caller sees it: its tokens, how many are to come, hashes told."""

    request: Request
    text: list[int]
    left: int
    told: int


class World:
    """Plays caller and engine: brings requests, keeps each block's content on paper, checks it.

    A chunk writes its tokens into the blocks, then everything up to its end is read back: a
    block that is shared, reused, copied or found wrongly shows as a wrong token. Guesses are
    written too, right and wrong ones; a wrong one that stays shows when its place is read.
    """

    def __init__(self, house: House, requests: list[Request], told_ahead: int = 0) -> None:
        book = BlockBook(house.blocks, SIZE, caching=house.caching)
        self.engine = Batcher(Limits(house.seqs, house.budget), book)
        self.memory = [[-1] * SIZE for _ in range(house.blocks)]
        self.requests = requests
        self.lines: dict[str, Line] = {}
        self.forked: set[str] = set()
        self.steps: list[Step] = []
        self.chance = random.Random(repr((house, requests)))
        self.guesses = house.guesses
        self.held: dict[str, int] = {}
        self.told_ahead = told_ahead  # hashes of so many tokens to come are told

    @property
    def busy(self) -> bool:
        return bool(self.lines) or any(r.arrives >= len(self.steps) for r in self.requests)

    def round(self) -> None:
        now = len(self.steps)
        for number, request in enumerate(self.requests):
            if request.arrives == now:
                self.arrive(f"r{number}", request)
        step = self.guess(self.engine.decide())
        self.steps.append(step)
        for name, line in list(self.lines.items()):
            if line.request.leaves == now - line.request.arrives:
                self.end(name)
        self.execute(step)
        self.engine.commit(step, self.held)
        self.sample(step)
        self.engine.book.check()
        for each in self.engine._running:
            most = self.engine.book.blocks_for(each.tokens)
            assert len(self.engine.table(each.id)) <= most, f"{each.id} kept blocks for guesses"

    def guess(self, step: Step) -> Step:
        """Guesses for some of the step's sequences, of which some hold."""
        guessed = self.engine.guess(
            step, {chunk.id: self.chance.randint(0, self.guesses) for chunk in step.chunks}
        )
        self.held = {
            chunk.id: self.chance.randint(0, chunk.guesses)
            for chunk in guessed.chunks
            if chunk.guesses
        }
        assert [replace(c, count=c.count - c.guesses, guesses=0) for c in guessed.chunks] == list(
            step.chunks
        )
        return guessed

    def arrive(self, name: str, request: Request) -> None:
        text = [request.text * 100 + position for position in range(request.prompt)]
        line = self.lines[name] = Line(request, text, request.most, 0)
        hashes = self.telling(line)
        self.engine.add(name, request.prompt, request.most, hashes, request.priority)

    def end(self, name: str) -> None:
        self.engine.finish(name)
        del self.lines[name]

    def execute(self, step: Step) -> None:
        for each in step.copies:
            self.memory[each.target] = self.memory[each.source].copy()
        there = [chunk for chunk in step.chunks if chunk.id in self.lines]
        for chunk in there:
            table, text = self.engine.table(chunk.id), self.spoken(chunk)
            for position in range(chunk.start, chunk.start + chunk.count):
                self.memory[table[position // SIZE]][position % SIZE] = text[position]
        for chunk in there:
            table = self.engine.table(chunk.id)
            there_now = [token for block in table for token in self.memory[block]]
            read = there_now[: chunk.start + chunk.count]
            assert read == self.spoken(chunk)[: len(read)], f"{chunk} reads {read}"

    def spoken(self, chunk: Chunk) -> list[int]:
        """A sequence's tokens and its guesses: those that hold, then wrong ones."""
        text, held = self.lines[chunk.id].text, self.held.get(chunk.id, 0)
        right = [text[0] + len(text) + ahead for ahead in range(held)]
        return text + right + [-2] * (chunk.guesses - held)

    def sample(self, step: Step) -> None:
        for chunk in step.chunks:
            if chunk.samples and chunk.id in self.lines:
                for _ in range(1 + self.held.get(chunk.id, 0)):
                    self.grow(chunk.id, branch=0)
                if chunk.id not in self.forked:
                    self.fork(chunk.id)
        for name in [name for name, line in self.lines.items() if not line.left]:
            self.end(name)

    def fork(self, parent: str) -> None:
        """The children of a request, each with its own first token."""
        line = self.lines[parent]
        self.forked.add(parent)
        for branch in range(1, line.request.forks + 1):
            child = f"{parent}.{branch}"
            self.engine.fork(parent, child, line.request.most)
            self.forked.add(child)
            prompt = line.text[: line.request.prompt]
            self.lines[child] = Line(line.request, prompt, line.request.most, len(prompt) // SIZE)
            self.grow(child, branch)

    def grow(self, name: str, branch: int) -> None:
        """The next token: the same for equal texts, so that generated blocks are shared too."""
        line = self.lines[name]
        line.text.append(line.text[0] + len(line.text) + 1_000 * branch)
        line.left -= 1
        self.engine.extend(name, self.telling(line))

    def telling(self, line: Line) -> list[bytes]:
        """The hashes that a line's caller knows and has not told."""
        ahead = range(len(line.text), len(line.text) + min(self.told_ahead, line.left))
        hashes = hashes_of(line.text + [line.text[0] + position for position in ahead])
        told, line.told = line.told, max(line.told, len(hashes))
        return hashes[told:]


def hashes_of(text: list[int]) -> list[bytes]:
    return [repr(text[:end]).encode() for end in range(SIZE, len(text) + 1, SIZE)]


def fitting(house: House, requests: list[Request]) -> list[Request]:
    room = house.blocks * SIZE
    return [request for request in requests if request.prompt + request.most <= room]


def lived(house: House, requests: list[Request]) -> World:
    """A world after everybody has left; it never takes longer than it may."""
    world = World(house, fitting(house, requests))
    while world.busy:
        world.round()
        assert len(world.steps) < 1_000, "somebody never ends"
    return world
