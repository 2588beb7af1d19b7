"""Scaling by queue depth fails in five ways. Each is shown here on replicas that run, and ours not.

Both rules meet the same requests on the same replicas (`cp_world`); what the naive one does wrong
is asserted too, so that none of these tests can pass because nothing happened.
"""

from pathlib import Path

from cp_rules import NAIVE, OURS, Rule
from cp_world import World, world

#: Times of a replica that is tried: short, but longer than both rules take to look.
QUICK = "down: {stabilise: 300ms}, zero_after: 300ms, up: {by: 6, every: 1s}"


def ordered_while(made: World, stream_end_s: float) -> list[int]:
    return [wanted for at_s, wanted in made.sizes if at_s < stream_end_s]


async def down_to_zero(rule: Rule, folder: Path) -> tuple[str, list[int]]:
    """How the only request ended, and what was ordered while it ran."""
    options = {
        "engine": "step: 10ms, max_seqs: 4",
        "replicas": "min: 0, max: 2, slots: 32",
        "scale": f"target_per_replica: 4, {QUICK}",
    }
    async with world(rule, folder, first=1, **options) as made:
        stream = made.ask(150)
        await made.until(lambda: stream.runs)
        made.begin()
        await made.until_ended()
        during = ordered_while(made, stream.ended_s)
        await made.until(lambda: made.size == 0)
        return stream.end, during


async def test_it_does_not_drain_to_zero_while_requests_run(tmp_path: Path) -> None:
    assert await down_to_zero(OURS, tmp_path) == ("done", [])
    end, during = await down_to_zero(NAIVE, tmp_path)
    assert end != "done"
    assert 0 in during


async def most_ordered(rule: Rule, folder: Path) -> int:
    """How many replicas there were at most for six requests, two a replica."""
    options = {
        "engine": "step: 10ms, max_seqs: 2, starting: 1s",
        "replicas": "min: 1, max: 6, slots: 32",
        "scale": f"target_per_replica: 2, {QUICK}",
    }
    async with world(rule, folder, first=1, **options) as made:
        for _ in range(6):
            made.ask(2_000)
        await made.until(lambda: any(one.runs for one in made.streams))
        made.begin()
        await made.until(lambda: made.ready >= 3)
        return max(wanted for _, wanted in made.sizes)


async def test_it_does_not_overshoot_while_replicas_start(tmp_path: Path) -> None:
    assert await most_ordered(OURS, tmp_path) == 3
    assert await most_ordered(NAIVE, tmp_path) == 6


async def ends_of_early_requests(rule: Rule, folder: Path) -> list[str]:
    """Requests that come while the first replica still loads."""
    options = {
        "engine": "step: 5ms, max_seqs: 8, loading: 2s",
        "replicas": "min: 1, max: 1",
        "scale": f"target_per_replica: 8, {QUICK}",
    }
    async with world(rule, folder, first=0, **options) as made:
        for _ in range(4):
            made.ask(5)
        made.begin()
        return await made.until_ended()


async def test_nothing_is_sent_to_a_replica_that_still_loads(tmp_path: Path) -> None:
    assert await ends_of_early_requests(OURS, tmp_path) == ["done"] * 4
    assert await ends_of_early_requests(NAIVE, tmp_path) == ["refused 503"] * 4


async def ordered_for_a_queue_here(rule: Rule, folder: Path) -> list[int]:
    """What is ordered for eight requests, of which the gateway lets two at a time through."""
    options = {
        "engine": "step: 10ms, max_seqs: 2",
        "replicas": "min: 1, max: 4",
        "scale": f"target_per_replica: 2, {QUICK}",
    }
    async with world(rule, folder, first=1, **options) as made:
        for _ in range(8):
            made.ask(80)
        made.begin()
        assert set(await made.until_ended()) == {"done"}
        last_s = max(one.ended_s for one in made.streams)
        return ordered_while(made, last_s)


async def test_it_sees_the_queue_where_it_has_moved_to(tmp_path: Path) -> None:
    assert max(await ordered_for_a_queue_here(OURS, tmp_path)) == 4
    assert await ordered_for_a_queue_here(NAIVE, tmp_path) == []


async def ends_at_scale_down(rule: Rule, folder: Path) -> list[str]:
    """One long stream on each of two replicas, of which one is enough.

    `n` is 2: such a stream cannot go on at another replica when its own is gone.
    """
    options = {
        "engine": "step: 10ms, max_seqs: 8",
        "replicas": "min: 1, max: 2",
        "scale": f"target_per_replica: 8, {QUICK}",
    }
    async with world(rule, folder, first=2, **options) as made:
        made.ask(200, n=2)
        made.ask(200, n=2)
        await made.until(lambda: all(one.runs for one in made.streams))
        assert len({one.replica for one in made.streams}) == 2
        made.begin()
        await made.until(lambda: made.size == 1)
        ends = await made.until_ended()
        ordered_s = made.sizes[0][0]
        assert all(one.ended_s > ordered_s for one in made.streams), "nothing ran any more"
        await made.until(lambda: len(made.gateway.status()["replicas"]) == 1)
        return ends


async def test_it_cuts_no_stream_when_it_takes_a_replica_away(tmp_path: Path) -> None:
    assert await ends_at_scale_down(OURS, tmp_path) == ["done", "done"]
    assert sorted(await ends_at_scale_down(NAIVE, tmp_path)) != ["done", "done"]
