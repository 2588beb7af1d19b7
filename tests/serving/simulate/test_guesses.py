"""Speculation in virtual time: the live speculator's own decisions, and what the laws say."""

import dataclasses
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import engine, model

from ridgeline.physics.speculation import accepted_length
from ridgeline.serving.engine.draft import Guesser
from ridgeline.serving.engine.speculator import Speculator as LiveSpeculator
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.acceptance_alarm import Expected
from ridgeline.serving.policy.batch import Batcher, Limits
from ridgeline.serving.policy.blocks import BlockBook
from ridgeline.serving.simulate.chances import Chances
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.guesses import Guessing, Speculator
from ridgeline.serving.simulate.pace import Pace
from ridgeline.serving.simulate.setup import Serving, Tenant
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

FLAT = Machine(Plain(0.01, 0.0, 1e9), 100_000)  # a guess costs nothing
STEEP = Machine(Plain(0.001, 0.001, 1e3), 100_000)  # a guess costs what a sequence costs


@dataclass
class Drafted:
    """A live draft whose guess of position p is p where it holds by the simulator's chance."""

    name: str
    chances: Chances
    chance: float

    def propose(self, tokens, count):
        first = len(tokens)
        held = [self.chances.share("guess", self.name, first + at) < self.chance
                for at in range(count)]  # fmt: skip
        return [first + at if holds else -1 for at, holds in enumerate(held)]


@dataclass
class Sequence:
    """As much of a live sequence as the speculator looks at; its true tokens count up."""

    id: str
    most: int
    tokens: list[int]
    guesser: Guesser | None = field(default=None)

    @property
    def room(self):
        return self.most - len(self.tokens) - 1


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(2, 80)), min_size=1, max_size=4),
    st.floats(0, 1),
    st.sampled_from([FLAT, STEEP]),
    st.integers(1, 5),
)
def test_every_step_guesses_what_the_live_speculator_would(told, chance, machine, drafts):
    chances, pace = Chances(7), Pace(machine)
    batcher = Batcher(Limits(8, 512), BlockBook(500, 4))
    virtual = Speculator(Guessing(chance, drafts), chances, batcher)
    sequences = {}
    for number, (prompt, output) in enumerate(told):
        batcher.add(str(number), prompt, output)
        virtual.enters(str(number))
        sequences[str(number)] = one = Sequence(str(number), prompt + output, [*range(prompt)])
        one.guesser = Guesser(Drafted(one.id, chances, chance))
    live = LiveSpeculator(lambda: pytest.fail("every sequence has its draft"), drafts)
    while sequences:
        step = batcher.decide()
        wanted = {}
        if step.decodes:
            wanted = live.guesses([sequences[chunk.id] for chunk in step.chunks])
        counts = {one: len(guesses) for one, guesses in wanted.items()}
        expected = batcher.guess(step, counts) if counts else step
        step, _ = virtual.guessed(step, pace.step_fs(step))
        assert step == expected
        held = virtual.held_in(step)
        took_s = pace.step_fs(step) / 1e15
        batcher.commit(step, held)
        if step.decodes:
            virtual.stepped(step.tokens, took_s)
            live.stepped(step.tokens, took_s)
        for chunk in step.chunks:
            if chunk.samples:
                one = sequences[chunk.id]
                more = 1 + held.get(chunk.id, 0)
                one.tokens += range(len(one.tokens), len(one.tokens) + more)
        for name in batcher.complete:
            batcher.finish(name)
            virtual.leaves(name)
            del sequences[name]


def run(guessing, machine=FLAT, *, every_s=0.5, tenants=(), seed=0, jumps=True):
    names = tenants or ("",)
    requests = [
        Request(number * every_s, 1, 200, tenant=names[number % len(names)]) for number in range(20)
    ]
    one = model(engine=engine(machine=machine, guessing=guessing))
    serving = Serving((one,), tuple(map(Tenant, tenants)), seed=seed, jumps=jumps)
    return simulate(serving, OpenLoop(requests, "chat"))


@pytest.mark.parametrize("acceptance", [0.0, 0.5, 0.9, 1.0])
def test_a_step_keeps_as_many_tokens_as_the_law_says(acceptance):
    plain, guessing = run(None), run(Guessing(acceptance, rule="always"))
    kept = plain.tpot_s().mean() / guessing.tpot_s().mean()
    law = accepted_length(acceptance, 4) if acceptance < 1 else 5.0
    assert kept == pytest.approx(law, rel=0.03)


def test_who_is_of_a_class_has_its_acceptance():
    found = run(Guessing({"good": 0.9, "": 0.1}, rule="always"), tenants=("good", "other"))
    good, other = (found.of(tenant=name).tpot_s().mean() for name in ("good", "other"))
    assert other / good == pytest.approx(
        accepted_length(0.9, 4) / accepted_length(0.1, 4), rel=0.05
    )


def test_another_seed_has_other_chances_and_the_same_seed_the_same():
    told = Guessing(0.5)
    assert run(told).digest == run(told).digest
    assert run(told).digest != run(told, seed=1).digest


OTHERS = {
    "acceptance": 0.3, "drafts": 3, "draft_share": 0.1, "rule": "measured", "off_above": 1,
    "expected": Expected(0.9),
}  # fmt: skip


@pytest.mark.parametrize("field", [one.name for one in dataclasses.fields(Guessing)])
def test_no_option_is_accepted_and_then_ignored(field):
    told = Guessing(0.7, rule="always")
    first, second = (
        run(one, STEEP, every_s=0.1) for one in (told, replace(told, **{field: OTHERS[field]}))
    )
    assert first.digest != second.digest


def test_a_draft_takes_its_share_of_a_plain_step_for_each_guess_in_a_row():
    """10 ms a step; 4 guesses of 5 % each make it 12 ms."""
    free, dear = (run(Guessing(1.0, 4, share, "always")) for share in (0.0, 0.05))
    assert dear.tpot_s().mean() / free.tpot_s().mean() == pytest.approx(1.2, rel=0.01)


def test_the_switch_takes_no_guesses_where_they_cost_more_than_they_give():
    plain, always, measured = (
        run(told, STEEP) for told in (None, Guessing(0.3, rule="always"), Guessing(0.3))
    )
    assert always.tpot_s().mean() > 1.5 * plain.tpot_s().mean()
    assert measured.tpot_s().mean() < 1.05 * plain.tpot_s().mean()


def test_above_its_batch_the_fixed_rule_is_off_and_steps_are_jumped_over():
    told = Guessing(0.7, rule="always", off_above=1)
    jumped, stepped = (run(told, every_s=0.1, jumps=jumps) for jumps in (True, False))
    assert jumped.digest == stepped.digest
    assert run(replace(told, off_above=0), every_s=0.1).digest != jumped.digest


@pytest.mark.parametrize(
    "wrong",
    [{"acceptance": 1.1}, {"acceptance": {"a": -0.1}}, {"acceptance": 0.5, "drafts": 0},
     {"acceptance": 0.5, "off_above": 3}],
)  # fmt: skip
def test_what_no_draft_can_be_is_refused(wrong):
    with pytest.raises(ValueError, match=r"chances|drafts|off_above"):
        Guessing(**wrong)
