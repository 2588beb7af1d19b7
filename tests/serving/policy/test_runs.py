"""A run in one go leaves what the same steps leave one by one: every count, block id and order."""

import copy
from dataclasses import fields

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.serving.policy.batch_world import HOUSES, House, Request, World, fitting

from ridgeline.serving.policy.batch import Batcher
from ridgeline.serving.policy.batch import Sequence as Counted

State = dict[str, object]


def state(engine: Batcher) -> State:
    """All that a batcher and its book remember, in order where they keep an order."""
    book = engine.book
    names = [field.name for field in fields(Counted)]
    return {
        "sequences": {
            one.id: [copy.copy(getattr(one, name)) for name in names]
            for one in engine._sequences.values()
        },
        "running": [one.id for one in engine._running],
        "waiting": [one.id for one in engine._waiting],
        "tables": {name: list(table) for name, table in book._tables.items()},
        "references": dict(book._references),
        "hashes": list(book._hashes),
        "blank": list(book._blank),
        "idle": list(book._idle),
        "carriers": dict(book._carriers),
        "twins": {digest: list(blocks) for digest, blocks in book._twins.items()},
    }


def step_by_step(engine: Batcher, times: int) -> Batcher:
    """A copy after so many rounds from its decision on, each decided."""
    engine = copy.deepcopy(engine)
    for _ in range(times - 1):
        engine.commit(engine.decide())
    engine.commit(engine.decide())
    return engine


def in_one_go(engine: Batcher, times: int) -> Batcher:
    engine = copy.deepcopy(engine)
    engine.repeat(engine.decide(), times)
    return engine


def go_on(engine: Batcher, rounds: int) -> list[object]:
    """What is decided next, those that have all their tokens leaving first."""
    decided = []
    for _ in range(rounds):
        for one in [one for one in engine._running if one.tokens == one.most]:
            engine.finish(one.id)
        step = engine.decide()
        engine.commit(step)
        decided.append(step)
    engine.book.check()
    return decided


def assert_same(engine: Batcher, times: int) -> None:
    walked, jumped = step_by_step(engine, times), in_one_go(engine, times)
    assert state(jumped) == state(walked), f"{times} steps"
    assert go_on(jumped, 6) == go_on(walked, 6), f"after {times} steps"
    assert state(jumped) == state(walked), f"long after {times} steps"


REQUESTS = st.lists(
    st.builds(
        Request,
        arrives=st.integers(0, 12),
        prompt=st.integers(1, 14),
        most=st.integers(1, 22),
        text=st.integers(0, 2),
        priority=st.integers(0, 1),
        forks=st.sampled_from([0, 0, 0, 1, 3]),
        leaves=st.sampled_from([None, None, None, 3, 7]),
    ),
    min_size=1,
    max_size=8,
)
TIGHT_AND_WIDE = st.one_of(
    HOUSES,
    st.builds(House, st.integers(9, 40), st.integers(2, 6), st.integers(6, 30)),
)


@settings(max_examples=150, deadline=None)
@given(TIGHT_AND_WIDE, REQUESTS, st.sampled_from([0, 3, 9, 40]))
def test_a_run_in_one_go_leaves_what_step_by_step_leaves(
    house: House, requests: list[Request], told_ahead: int
) -> None:
    world = World(house, fitting(house, requests), told_ahead)
    while world.busy:
        decided = copy.deepcopy(world.engine)
        horizon = decided.horizon(decided.decide())
        for times in {1, 2, horizon // 2, horizon - 1, horizon} & set(range(1, horizon + 1)):
            assert_same(world.engine, times)
        world.round()


@settings(max_examples=150, deadline=None)
@given(TIGHT_AND_WIDE, REQUESTS, st.sampled_from([0, 3, 9, 40]))
def test_a_run_in_short_is_the_decision_and_its_horizon(
    house: House, requests: list[Request], told_ahead: int
) -> None:
    world = World(house, fitting(house, requests), told_ahead)
    while world.busy:
        told, decided = copy.deepcopy(world.engine), copy.deepcopy(world.engine)
        before = state(told)
        run, step = told.run(), decided.decide()
        if run is None:
            assert state(told) == before
            begins = any(one.tokens == one.prompt for one in decided._running)
            assert decided.horizon(step) <= 1 or begins or step.copies or world.engine.waiting
        else:
            assert state(told) == state(decided)
            assert run.sequences == len(step.chunks)
            assert run.cached_tokens == sum(chunk.start for chunk in step.chunks)
            assert run.steps == decided.horizon(step)
            told.advance(run.steps)
            decided.repeat(step, run.steps)
            assert state(told) == state(decided)
            ended = [one.id for one in decided._running if one.tokens == one.most]
            assert told.complete == ended
            assert all(told.left(name) == 0 for name in ended)
        world.round()
