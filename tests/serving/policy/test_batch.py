"""The scheduler's laws, each on the real state machine; the known-bad rules live only here."""

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from tests.serving.policy.batch_world import (
    HOUSES,
    REQUESTS,
    SIZE,
    House,
    Request,
    World,
    fitting,
    lived,
)

from ridgeline.serving.policy import batch
from ridgeline.serving.policy.batch import Batcher, Chunk, Limits, Step, newest
from ridgeline.serving.policy.blocks import BlockBook


def batcher(blocks: int = 64, *, seqs: int = 8, budget: int = 64, size: int = SIZE) -> Batcher:
    return Batcher(Limits(seqs, budget), BlockBook(blocks, size))


def run(engine: Batcher, steps: int = 1) -> Step:
    """So many whole steps; the last one comes back. Nothing is finished."""
    for _ in range(steps):
        step = engine.decide()
        engine.commit(step)
    return step


def chunks(step: Step) -> list[tuple[str, int, int, bool]]:
    return [(chunk.id, chunk.start, chunk.count, chunk.samples) for chunk in step.chunks]


def ids(step: Step) -> list[str]:
    return [chunk.id for chunk in step.chunks]


# The round of a request


def test_a_prompt_is_one_chunk_and_each_further_token_one_more() -> None:
    engine = batcher()
    engine.add("a", 10, 3)
    assert (engine.running, engine.waiting) == (0, 1)
    first = run(engine)
    assert chunks(first) == [("a", 0, 10, True)]
    assert (first.tokens, first.admitted[0].cached_tokens) == (10, 0)
    assert (engine.running, engine.waiting) == (1, 0)
    assert chunks(run(engine)) == [("a", 10, 1, True)]
    assert chunks(run(engine)) == [("a", 11, 1, True)]
    engine.finish("a")
    assert run(engine) == Step((), (), (), (), ())
    assert engine.book.used == 0


def test_deciding_takes_blocks_and_does_not_advance() -> None:
    engine = batcher()
    engine.add("a", 10, 3)
    step = engine.decide()
    assert len(engine.table("a")) == 3
    assert engine.decide().chunks == step.chunks


def test_a_long_prompt_runs_in_chunks_and_only_the_last_one_samples() -> None:
    engine = batcher(budget=8)
    engine.add("a", 20, 3)
    steps = [run(engine) for _ in range(4)]
    assert [chunks(step)[0] for step in steps] == [
        ("a", 0, 8, False),
        ("a", 8, 8, False),
        ("a", 16, 4, True),
        ("a", 20, 1, True),
    ]
    assert steps[0].reasons == ("a computes 8 of the 20 tokens it owes",)
    assert steps[2].reasons == ()


def test_a_decode_goes_before_a_prompt_and_the_prompt_takes_the_rest() -> None:
    engine = batcher(budget=8)
    engine.add("long", 30, 3)
    engine.add("short", 2, 9)
    run(engine, 4)
    assert chunks(run(engine)) == [("long", 30, 1, True), ("short", 2, 1, True)]
    engine.finish("long")
    engine.add("later", 30, 3, priority=-1)
    run(engine)
    assert chunks(run(engine)) == [("short", 4, 1, True), ("later", 7, 7, False)]


def test_a_sequence_that_has_its_last_token_must_be_finished_first() -> None:
    engine = batcher()
    engine.add("a", 4, 1)
    run(engine)
    with pytest.raises(AssertionError, match="a is complete"):
        engine.decide()


@pytest.mark.parametrize("when", ["waiting", "running", "decided", "preempted"])
def test_a_sequence_can_be_finished_in_any_state(when: str) -> None:
    engine = batcher(blocks=4)
    engine.add("a", 8, 8)
    if when != "waiting":
        step = engine.decide()
        if when != "decided":
            engine.commit(step)
    if when == "preempted":
        engine.add("b", 3, 9, priority=-1)
        run(engine)
        assert run(engine, 2).preempted == ("a",)
        engine.finish("b")
    engine.finish("a")
    if when == "decided":
        engine.commit(step)
    assert (engine.running, engine.waiting, engine.book.used) == (0, 0, 0)
    engine.book.check()
    with pytest.raises(KeyError):
        engine.finish("a")


def test_a_step_does_not_advance_a_new_sequence_of_the_same_name() -> None:
    engine = batcher()
    engine.add("a", 8, 8)
    step = engine.decide()
    engine.finish("a")
    engine.add("a", 8, 8)
    engine.commit(step)
    assert chunks(run(engine)) == [("a", 0, 8, True)]


@pytest.mark.parametrize(
    ("prompt", "most", "why"),
    [(0, 1, "empty"), (4, 0, "max_tokens"), (60, 5, "whole cache"), (65, 1, "whole cache")],
)
def test_what_could_never_run_is_refused(prompt: int, most: int, why: str) -> None:
    engine = batcher(blocks=16)
    with pytest.raises(ValueError, match=why):
        engine.add("a", prompt, most)
    assert engine.waiting == 0
    engine.add("a", 60, 4)
    with pytest.raises(ValueError, match="in use"):
        engine.add("a", 1, 1)


# Who runs, who waits, who goes


def test_lower_priority_numbers_go_first_then_arrival() -> None:
    engine = batcher(seqs=2)
    for name, priority in (("a", 1), ("b", 0), ("c", 1), ("d", 0)):
        engine.add(name, 4, 2, priority=priority)
    step = run(engine)
    assert ids(step) == ["b", "d"]
    assert step.reasons == ("a waits, 1 behind it: all 2 seats are taken",)
    engine.finish("b")
    assert [admitted.id for admitted in run(engine).admitted] == ["a"]


def test_nobody_overtakes_the_first_that_does_not_fit() -> None:
    engine = batcher(blocks=4)
    engine.add("a", 8, 4)
    run(engine)
    engine.add("big", 12, 4)
    engine.add("small", 1, 1)
    step = run(engine)
    assert ids(step) == ["a"]
    assert step.reasons == ("big waits, 1 behind it: 1 blocks are free, it needs 3 in all",)


def test_the_newest_of_the_lowest_priority_is_preempted() -> None:
    engine = batcher(blocks=4, seqs=4)
    for name, priority in (("low", 1), ("old", 0), ("new", 0), ("lowest", 2)):
        engine.add(name, 4, 8, priority=priority)
    run(engine)
    step = engine.decide()
    assert step.preempted == ("lowest", "low")
    assert ids(step) == ["old", "new"]
    assert step.reasons[0] == (
        "lowest is preempted and keeps its 5 tokens: too few blocks were free for old"
    )
    assert step.reasons[-1] == "low waits, 1 behind it: blocks ran out in this step"


def test_a_preempted_sequence_keeps_its_tokens_and_comes_back_before_those_behind_it() -> None:
    engine = batcher(blocks=4)
    engine.add("a", 4, 12)
    engine.add("b", 4, 12)
    run(engine)
    engine.add("c", 4, 4)
    preempted = next(step for _ in range(9) if (step := run(engine)).preempted)
    assert preempted.preempted == ("b",)
    assert not preempted.admitted
    engine.finish("a")
    back = run(engine)
    assert chunks(back)[0] == ("b", 0, 9, True)
    assert ids(back) == ["b", "c"]


def test_a_preempted_sequence_finds_what_the_cache_still_has() -> None:
    engine = batcher(blocks=5)
    engine.add("a", 4, 12)
    engine.add("b", 8, 8, [b"b1", b"b2"])
    run(engine, 5)
    assert run(engine).preempted == ("b",)
    engine.finish("a")
    assert run(engine).admitted[0].cached_tokens == 8


# The prefix cache


def test_a_later_request_starts_after_the_cached_prefix() -> None:
    engine = batcher()
    engine.add("a", 12, 4, [b"1", b"2", b"3"])
    run(engine)
    engine.add("b", 12, 4, [b"1", b"2", b"3"])
    step = run(engine)
    assert step.admitted[0].cached_tokens == 8, "the last token is computed, so its block is too"
    assert chunks(step) == [("a", 12, 1, True), ("b", 8, 4, True)]
    assert engine.table("b")[:2] == engine.table("a")[:2]


def test_a_block_is_not_found_before_it_is_computed() -> None:
    engine = batcher(budget=8)
    engine.add("a", 16, 4, [b"1", b"2", b"3", b"4"])
    engine.decide()
    assert engine.book.cached([b"1"]) == 0
    run(engine)
    assert engine.book.cached([b"1", b"2", b"3"]) == 2


def test_generated_blocks_are_found_once_their_hash_is_told() -> None:
    engine = batcher()
    engine.add("a", 6, 9, [b"1"])
    run(engine, 2)
    engine.extend("a", [b"2"])
    assert engine.book.cached([b"1", b"2"]) == 1, "7 tokens are computed"
    run(engine)
    assert engine.book.cached([b"1", b"2"]) == 2
    run(engine, 4)
    engine.extend("a", [b"3"])
    assert engine.book.cached([b"1", b"2", b"3"]) == 3


# Forks


def test_a_fork_shares_all_blocks_and_copies_one() -> None:
    engine = batcher()
    engine.add("a", 10, 4)
    run(engine)
    engine.fork("a", "b", 4)
    assert (engine.running, engine.book.used) == (2, 3)
    shared = engine.table("a")[2]
    step = engine.decide()
    assert chunks(step) == [("a", 10, 1, True), ("b", 10, 1, True)]
    assert [copied.source for copied in step.copies] == [shared]
    assert engine.book.used == 4
    engine.commit(step)
    assert engine.decide().copies == ()


def test_a_fork_without_a_seat_waits_with_its_first_token() -> None:
    engine = batcher(seqs=1)
    engine.add("a", 9, 4, [b"1", b"2"])
    engine.add("z", 4, 4)
    run(engine)
    engine.fork("a", "b", 4)
    assert (engine.running, engine.waiting) == (1, 2)
    engine.finish("a")
    assert chunks(run(engine)) == [("b", 8, 2, True)], "before z, which came after a"


def test_a_fork_is_refused_where_a_request_would_be() -> None:
    engine = batcher(blocks=4)
    engine.add("a", 8, 4)
    run(engine)
    for child, most, why in (("a", 4, "in use"), ("b", 9, "whole cache"), ("b", 0, "max_tokens")):
        with pytest.raises(ValueError, match=why):
            engine.fork("a", child, most)
    with pytest.raises(KeyError):
        engine.fork("unknown", "b", 4)


def test_a_fork_does_not_inherit_hashes_of_its_parents_own_tokens() -> None:
    engine = batcher()
    engine.add("a", 7, 4, [b"1"])
    run(engine)
    engine.extend("a", [b"2 with a's first token"])
    engine.fork("a", "b", 4)
    run(engine)
    engine.finish("a")
    engine.extend("b", [b"2 with b's first token"])
    theirs, ours = engine.table("b")[1], engine.table("b")[1]
    assert engine.book.cached([b"1", b"2 with a's first token"]) == 2
    assert engine.book.cached([b"1", b"2 with b's first token"]) == 2
    assert engine.book.open("c", 9, [b"1", b"2 with a's first token"]) == 2
    assert engine.book.table("c")[1] != ours == theirs


# Guesses


def guessed(engine: Batcher, **guesses: int) -> Step:
    return engine.guess(engine.decide(), guesses)


def test_a_decode_with_guesses_is_one_chunk_and_goes_on_behind_those_that_held() -> None:
    engine = batcher()
    engine.add("a", 10, 9)
    run(engine)
    step = guessed(engine, a=3)
    assert step.chunks == (Chunk("a", 10, 4, True, guesses=3),)
    assert step.decodes
    assert len(engine.table("a")) == 4
    engine.commit(step, {"a": 2})
    assert chunks(run(engine)) == [("a", 13, 1, True)]


def test_blocks_of_guesses_that_did_not_hold_are_free_again() -> None:
    engine = batcher()
    engine.add("a", 4, 20)
    run(engine)
    step = guessed(engine, a=9)
    assert engine.book.used == 4
    engine.commit(step)
    assert engine.book.used == 2
    assert chunks(run(engine)) == [("a", 5, 1, True)]


@pytest.mark.parametrize(
    ("asked", "most", "budget", "blocks", "given"),
    [
        (3, 20, 64, 64, 3),
        (9, 6, 64, 64, 4),  # one token is known of six, and the last is sampled
        (9, 2, 64, 64, 0),
        (9, 20, 4, 64, 3),
        (3, 20, 64, 7, 3),  # the second block holds three
        (4, 20, 64, 7, 0),  # four need a third, and b has all the others
    ],
)
def test_guesses_take_what_tokens_blocks_and_the_end_leave(
    asked: int, most: int, budget: int, blocks: int, given: int
) -> None:
    engine = batcher(blocks=blocks, budget=budget, seqs=2)
    engine.add("a", 4, most)
    if blocks == 7:
        engine.add("b", 18, 2)
    run(engine)
    assert guessed(engine, a=asked).chunks[0].guesses == given


def test_every_decode_is_in_the_step_before_anybody_guesses() -> None:
    engine = batcher(budget=8)
    for name in "abc":
        engine.add(name, 2, 9)
    run(engine)
    step = guessed(engine, a=9, b=9, c=9)
    assert [(chunk.id, chunk.guesses) for chunk in step.chunks] == [("a", 5), ("b", 0), ("c", 0)]


def test_neither_prompts_nor_first_tokens_are_guessed_on() -> None:
    engine = batcher(budget=6, seqs=2)
    engine.add("a", 9, 9, [b"1", b"2"])
    assert not guessed(engine, a=3).decodes
    run(engine, 2)
    engine.add("b", 9, 9, [b"1", b"2"])
    step = guessed(engine, a=3, b=3)
    assert [(chunk.id, chunk.count, chunk.guesses) for chunk in step.chunks] == [
        ("a", 4, 3),
        ("b", 1, 0),
    ], "b's only row gives its first token, of which there may be several"


def test_only_blocks_full_of_tokens_that_held_are_found_later() -> None:
    engine = batcher()
    engine.add("a", 6, 9, [b"1"])
    run(engine)
    engine.commit(guessed(engine, a=3), {"a": 0})
    assert engine._sequences["a"].computed == 7
    engine.extend("a", [b"2"])
    assert engine.book.cached([b"1", b"2"]) == 1, "the second block's last place held a guess"
    run(engine)
    assert engine.book.cached([b"1", b"2"]) == 2


def test_a_step_with_guesses_does_not_repeat() -> None:
    engine = batcher()
    engine.add("a", 4, 20)
    run(engine)
    assert engine.horizon(guessed(engine, a=2)) == 1


# Any mix of requests


@settings(max_examples=200, deadline=None)
@given(HOUSES, REQUESTS)
def test_any_mix_of_requests_that_each_fit_alone_finishes_and_leaks_nothing(
    house: House, requests: list[Request]
) -> None:
    world = lived(house, requests)
    assert (world.engine.running, world.engine.waiting, world.engine.book.used) == (0, 0, 0)


@settings(max_examples=120, deadline=None)
@given(HOUSES, REQUESTS)
def test_within_a_priority_seats_are_first_given_in_order_of_arrival(
    house: House, requests: list[Request]
) -> None:
    stay = [replace(request, leaves=None) for request in requests]
    world = lived(house, stay)
    first = dict.fromkeys(admitted.id for step in world.steps for admitted in step.admitted)
    for priority in (0, 1):
        numbers = [int(name[1:]) for name in first if "." not in name]
        numbers = [each for each in numbers if world.requests[each].priority == priority]
        assert numbers == sorted(numbers, key=lambda each: (world.requests[each].arrives, each))


@settings(max_examples=120, deadline=None)
@given(HOUSES, REQUESTS)
def test_no_step_breaks_its_laws(house: House, requests: list[Request]) -> None:
    world = World(house, fitting(house, requests))
    while world.busy:
        before = {each.id: each for each in map(copy.copy, world.engine._running)}
        world.round()
        step = world.steps[-1]
        assert step.tokens <= house.budget
        assert len(step.chunks) <= house.seqs
        assert not (step.preempted and step.admitted)
        assert len(set(ids(step))) == len(step.chunks)
        for sequence in before.values():
            owed = sequence.tokens - sequence.computed
            assert owed > 1 or sequence.id in {*ids(step), *step.preempted}, "a decode was left out"
        ranks = [before[name].rank for name in ids(step) if name in before]
        for name in step.preempted:
            assert all(before[name].rank > rank for rank in ranks), "the victim was not the newest"


# How long a decision holds


def repeats(step: Step, further: int) -> tuple[Chunk, ...]:
    return tuple(replace(chunk, start=chunk.start + further) for chunk in step.chunks)


@settings(max_examples=120, deadline=None)
@given(HOUSES, REQUESTS)
def test_the_horizon_is_the_number_of_steps_with_the_same_decision(
    house: House, requests: list[Request]
) -> None:
    world = World(house, fitting(house, [replace(r, leaves=None) for r in requests]))
    while world.busy:
        engine = copy.deepcopy(world.engine)
        step = engine.decide()
        horizon = engine.horizon(step)
        assert (horizon > 0) == bool(step.chunks)
        again = step
        for further in range(1, horizon):
            engine.commit(again)
            again = engine.decide()
            expected = Step(repeats(step, further), (), (), (), again.reasons)
            assert again == expected, f"differs {further} steps on, of {horizon}"
        if horizon > 1:
            engine.commit(again)
            complete = any(each.tokens == each.most for each in engine._running)
            assert complete or engine.decide().preempted, f"{horizon} was too careful"
        world.round()


@pytest.mark.parametrize(
    ("blocks", "most", "steps"),
    [(64, 50, 49), (64, 9, 8), (10, 13, 12), (8, 13, 9), (7, 13, 5), (5, 13, 1)],
)
def test_the_horizon_ends_with_the_shortest_or_where_blocks_run_out(
    blocks: int, most: int, steps: int
) -> None:
    engine = batcher(blocks=blocks)
    engine.add("a", 7, most)
    engine.add("b", 7, most)
    first = engine.decide()
    assert engine.horizon(first) == 1, "a prompt does not repeat"
    engine.commit(first)
    step = engine.decide()
    assert engine.horizon(step) == steps


def test_nothing_to_do_has_no_horizon() -> None:
    engine = batcher()
    assert engine.horizon(engine.decide()) == 0


def test_a_block_that_the_next_in_line_could_share_does_not_end_the_horizon() -> None:
    engine = batcher(blocks=4)
    engine.add("a", 6, 9, [b"1", b"2", b"3"])
    run(engine)
    engine.add("b", 13, 3, [b"1", b"2", b"3"])
    step = engine.decide()
    assert step.reasons == ("b waits: 2 blocks are free, it needs 4 in all",)
    assert engine.horizon(step) == 8
    engine.commit(step)
    run(engine, 2)
    assert engine.book.cached([b"1", b"2", b"3"]) == 2, "b could share one more, a took one more"
    assert ids(run(engine, 5)) == ["a"]


# Ledger rows


class Restarting(Batcher):
    """Known bad: a preempted sequence starts from zero, behind all others, and at once.

    `at_once` admits into the blocks that a preemption of the same step has just freed.
    """

    at_once = True

    def set_back(self, victim: batch.Sequence) -> None:
        super().set_back(victim)
        self._births += 1
        victim.tokens, victim.rank = victim.prompt, (0, self._births, 0)

    def may_admit(self, preempted: int) -> bool:
        return self.at_once or super().may_admit(preempted)


class RestartingLater(Restarting):
    """The same under the house's rule that a step that preempted admits nobody."""

    at_once = False


def oldest(running: list[batch.Sequence]) -> batch.Sequence:
    """Known bad: whoever has come furthest loses it."""
    return running[0]


def fight(
    kind: type[Batcher], victim: Callable[[list[batch.Sequence]], batch.Sequence], steps: int
) -> tuple[int, int, int]:
    """Preemptions, completions and steps of 4 sequences (16 + 32 tokens) in 4 blocks of 16."""
    engine = kind(Limits(4, 64), BlockBook(4, 16), victim=victim)
    for number in range(4):
        engine.add(f"s{number}", 16, 32)
    preempted = done = taken = 0
    while taken < steps and done < 4:
        step = run(engine)
        taken += 1
        preempted += len(step.preempted)
        for sequence in [each for each in engine._running if each.tokens == each.most]:
            engine.finish(sequence.id)
            done += 1
        engine.book.check()
    return preempted, done, taken


def test_tokens_of_a_victim_that_was_in_the_step_already_go_to_others() -> None:
    engine = Batcher(Limits(3, 6), BlockBook(6, SIZE), victim=oldest)
    engine.add("a", 2, 6)
    engine.add("b", 3, 6)
    run(engine)
    engine.add("c", 15, 4)
    assert chunks(run(engine))[-1] == ("c", 0, 4, False)
    step = run(engine)
    assert step.preempted == ("a",)
    assert chunks(step) == [("b", 4, 1, True), ("c", 4, 5, False)]


@pytest.mark.proves("S150")
def test_evicting_the_oldest_and_restarting_from_zero_livelocks() -> None:
    assert fight(Restarting, oldest, steps=100) == (17, 0, 100)
    assert fight(Restarting, oldest, steps=2_000)[1] == 0
    assert fight(RestartingLater, oldest, steps=100) == (16, 0, 100)
    assert fight(RestartingLater, oldest, steps=2_000)[1] == 0


@pytest.mark.proves("S150")
def test_evicting_the_newest_finishes_all_even_from_zero() -> None:
    assert fight(Batcher, newest, steps=100) == (4, 4, 93)
    assert fight(Restarting, newest, steps=200)[1] == 4
    assert fight(RestartingLater, newest, steps=200)[1] == 4


@pytest.mark.proves("S150")
def test_kept_tokens_finish_under_either_victim() -> None:
    assert fight(Batcher, newest, steps=100)[1] == 4
    assert fight(Batcher, oldest, steps=100)[1] == 4


class FirstChunk(BlockBook):
    """Known bad: a sequence is admitted where its first chunk fits, not all that it knows."""

    def open(self, sequence: str, tokens: int, hashes: Sequence[bytes] = ()) -> int | None:
        return super().open(sequence, min(tokens, 128), hashes[:0])


class Headroom(BlockBook):
    """Tried, not taken: one block more stays free for each running sequence."""

    def open(self, sequence: str, tokens: int, hashes: Sequence[bytes] = ()) -> int | None:
        if self._tables and self.blocks_for(tokens) + len(self._tables) > self.free:
            return None
        return super().open(sequence, tokens, hashes)


def overload(book: BlockBook, *, told: bool = False) -> tuple[int, int, float]:
    """Steps, preemptions and the share of rows computed in vain, on a pool half the demand."""
    chance = random.Random(150)
    engine = Batcher(Limits(64, 128), book)
    useful = rows = steps = preempted = 0
    left = {}
    for number in range(100):
        prompt, most = chance.randint(50, 800), chance.randint(20, 400)
        hashes = [f"{number}.{index}".encode() for index in range((prompt + most) // 16)]
        engine.add(str(number), prompt, most, hashes if told else ())
        left[str(number)] = most
        useful += prompt + most - 1
    while left:
        step = run(engine)
        steps, rows, preempted = steps + 1, rows + step.tokens, preempted + len(step.preempted)
        for chunk in step.chunks:
            left[chunk.id] -= chunk.samples
            if not left[chunk.id]:
                engine.finish(chunk.id)
                del left[chunk.id]
    return steps, preempted, rows / useful - 1


ADMISSION: dict[str, tuple[Callable[[], BlockBook], bool, int, float]] = {
    "all that is known": (lambda: BlockBook(256, 16, caching=False), False, 39, 0.29),
    "the first chunk": (lambda: FirstChunk(256, 16, caching=False), False, 607, 2.60),
    "all that is known, prefix cache": (lambda: BlockBook(256, 16), True, 40, 0.10),
    "and a block for each running, prefix cache": (lambda: Headroom(256, 16), True, 28, 0.08),
}


@pytest.mark.parametrize("room", ADMISSION)
def test_the_preemptions_in_decision_0005_come_from_these_admission_rules(room: str) -> None:
    book, told, preemptions, in_vain = ADMISSION[room]
    steps, preempted, share = overload(book(), told=told)
    assert (preempted, round(share, 2)) == (preemptions, in_vain)
    assert 3_050 < steps < 3_100, "all take the same time, counted in steps"


def steps_of_continuous(lengths: list[int], seats: int) -> int:
    """Steps in which the batcher finishes requests of these output lengths, seats kept full."""
    engine = Batcher(Limits(seats, 64), BlockBook(2_000, 16))
    for number, length in enumerate(lengths):
        engine.add(str(number), 1, length)
    left = dict(enumerate(lengths))
    steps = 0
    while engine.running or engine.waiting:
        step = run(engine)
        steps += 1
        for chunk in step.chunks:
            left[int(chunk.id)] -= 1
            if not left[int(chunk.id)]:
                engine.finish(chunk.id)
    return steps


@pytest.mark.proves("S163")
@pytest.mark.parametrize(("shape", "gain"), [("exponential", 2.72), ("uniform", 1.8)])
def test_iteration_level_batching_gains_the_longest_over_the_mean(shape: str, gain: float) -> None:
    chance = random.Random(163)
    draw = chance.random if shape == "uniform" else lambda: chance.expovariate(1.0)
    lengths = [1 + int(50 * draw()) for _ in range(4_000)]
    longest = [max(lengths[start : start + 8]) for start in range(0, len(lengths), 8)]
    measured = sum(longest) / steps_of_continuous(lengths, seats=8)
    expected = (sum(longest) / len(longest)) / (sum(lengths) / len(lengths))
    assert measured == pytest.approx(expected, rel=0.01)
    assert measured == pytest.approx(gain, rel=0.03)
