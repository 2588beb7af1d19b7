"""The switch, against machines whose steps cost what the test says."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.serving.policy.speculation import Fared, Offer, Speculation

Machine = Callable[[int], float]
"""Seconds of a step by its rows."""


def memory_bound(rows: int) -> float:
    """As long as reading the weights, until arithmetic takes longer: 8 rows are free."""
    return 0.01 * max(1.0, rows / 8)


def arithmetic(rows: int) -> float:
    return 0.01 * rows


class House:
    """An engine of `running` sequences whose guesses hold with this chance, step after step."""

    def __init__(self, machine: Machine, running: int, holds: float, *, drafted: int = 4) -> None:
        self.machine, self.running, self.holds, self.drafted = machine, running, holds, drafted
        self.policy = Speculation()
        self.fared = [Fared() for _ in range(running)]
        self.debts = [0.0] * running
        self.s = self.tokens = 0.0
        self.guessed: list[int] = []
        self.asked = 0

    def steps(self, count: int) -> "House":
        for _ in range(count):
            self.step()
        return self

    def step(self) -> None:
        counts = [0] * self.running
        if self.policy.due():
            self.asked += 1
            offers = [Offer(self.drafted, self.policy.chance(each)) for each in self.fared]
            counts = self.policy.choose(self.running, offers)
            for one, fared in enumerate(self.fared):
                held = self.held(one)
                self.policy.judge(fared, held, min(held + 1, self.drafted))
                self.tokens += min(held, counts[one])
        rows = self.running + sum(counts)
        self.guessed.append(sum(counts))
        self.tokens += self.running
        self.s += self.machine(rows)
        self.policy.stepped(rows, self.machine(rows))

    def held(self, one: int) -> int:
        """How many hold in a row, without chance: misses are spread evenly."""
        for held in range(self.drafted):
            self.debts[one] += 1 - self.holds
            if self.debts[one] >= 1:
                self.debts[one] -= 1
                return held
        return self.drafted

    @property
    def gain(self) -> float:
        """Tokens a second, over what no guesses would have given."""
        return self.tokens / self.s / (self.running / self.machine(self.running))


def test_plain_steps_are_measured_first_then_ever_wider_ones() -> None:
    guessed = House(memory_bound, 1, 0.9).steps(12).guessed
    assert guessed == [0, 0, 0, 1, 1, 1, 3, 3, 3, 4, 4, 4]


def test_a_lone_sequence_whose_guesses_hold_gets_them_all() -> None:
    house = House(memory_bound, 1, 0.8).steps(500)
    assert house.guessed[-100:] == [4] * 100
    assert house.gain > 2.5


def test_guesses_that_never_hold_are_not_run_for_long() -> None:
    house = House(lambda rows: 0.01 * (1 + 0.05 * rows), 1, 0.0).steps(500)
    assert sum(house.guessed[100:]) == 0
    assert house.gain > 0.98


def test_they_are_run_again_when_guesses_of_the_same_text_begin_to_hold() -> None:
    house = House(lambda rows: 0.01 * (1 + 0.05 * rows), 1, 0.0).steps(500)
    house.holds = 0.9
    assert sum(house.steps(100).guessed[-20:]) == 80, "judged although they were not run"


@pytest.mark.parametrize("machine", [memory_bound, arithmetic])
@pytest.mark.parametrize("holds", [0.0, 0.3, 0.6])
def test_a_loaded_engine_loses_less_than_a_fiftieth(machine: Machine, holds: float) -> None:
    house = House(machine, 16, holds).steps(3_000)
    assert house.gain > 0.98


def test_under_load_drafts_are_asked_every_sixteenth_step() -> None:
    house = House(arithmetic, 16, 0.3).steps(100)
    house.asked = 0
    assert house.steps(320).asked == 20


def test_an_engine_that_empties_begins_to_guess_by_itself() -> None:
    busy = House(memory_bound, 16, 0.6).steps(400)
    assert sum(busy.guessed[-50:]) == 0
    quiet = House(memory_bound, 1, 0.6)
    quiet.policy = busy.policy
    assert sum(quiet.steps(60).guessed[-20:]) > 60


def test_between_guesses_of_two_sequences_the_likelier_are_taken() -> None:
    policy = Speculation()
    for rows in (2, 3, 6):
        for _ in range(3):
            policy.stepped(rows, {2: 0.01, 3: 0.0101, 6: 0.02}[rows])
    assert policy.choose(2, [Offer(2, 0.1), Offer(2, 0.9)])[0] == 0


def test_a_gain_that_is_not_worth_starting_for_is_worth_staying_for() -> None:
    policy = Speculation()
    for rows, took_s in ((1, 0.010), (2, 0.0155)):
        for _ in range(3):
            policy.stepped(rows, took_s)
    worth_a_sixth = [Offer(1, 0.8)]
    assert policy.choose(1, worth_a_sixth) == [0]
    assert policy.choose(1, [Offer(1, 0.95)]) == [1]
    assert policy.choose(1, worth_a_sixth) == [1]
    assert policy.choose(1, [Offer(1, 0.6)]) == [0]
    assert policy.choose(1, worth_a_sixth) == [0]


def test_a_slow_step_now_and_then_switches_nothing() -> None:
    house = House(memory_bound, 1, 0.8).steps(50)
    for number in range(100):
        house.machine = (lambda _: 1.0) if number % 10 == 0 else memory_bound
        house.step()
    assert house.guessed[50:] == [4] * 100


@pytest.mark.parametrize(("running", "asked"), [(1, 96), (4, 24), (16, 6), (64, 6)])
def test_where_nobody_has_a_guess_many_are_asked_more_seldom(running: int, asked: int) -> None:
    policy = Speculation()
    found = 0
    for _ in range(96):
        if policy.due():
            found += 1
            assert policy.choose(running, [Offer(0, 0.5)] * running) == [0] * running
        policy.stepped(running, 0.01)
    assert found == asked


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.floats(0.01, 0.99)), min_size=1, max_size=12),
    st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=20),
)
def test_no_choice_is_larger_than_its_offer(
    offers: list[tuple[int, float]], steps: list[float]
) -> None:
    policy = Speculation()
    for rows, took_s in enumerate(steps, 1):
        for _ in range(3):
            policy.stepped(rows, took_s)
    chosen = policy.choose(len(offers), [Offer(count, chance) for count, chance in offers])
    assert all(0 <= one <= count for one, (count, _) in zip(chosen, offers, strict=True))


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=60))
def test_a_chance_stays_between_never_and_always(rows: list[tuple[int, bool]]) -> None:
    fared = Fared()
    for held, ended in rows:
        fared.judge(held, held + ended)
    assert 0 < fared.chance(0.5) < 1
