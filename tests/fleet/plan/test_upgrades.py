"""Waves of an upgrade: how long, and no job on nodes that it does not run with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import SpecError
from ridgeline.fleet.plan.upgrades import Job, place
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

ROW = {"nodes": 2000, "canary_share": "1%", "wave_share": "10%", "wave_s": "90 min"}
VERSIONS = ("a", "b", "c")


@pytest.mark.proves("S123")
def test_2000_nodes_in_waves_of_1_and_10_percent_and_90_min_take_16_5_hours():
    answer = ask("upgrade-waves", ROW).answer
    assert answer.values["duration_s"].to("h") == pytest.approx(16.5)
    assert answer.values["waves"].value == 11
    waves = answer.table[:-1]
    sizes = [row["out"].value for row in waves]
    assert sizes == [20] + [200] * 9 + [180]
    assert [row["starts"].to("h") for row in waves] == pytest.approx([1.5 * n for n in range(11)])
    for row in answer.table:
        assert row["before"].value + row["out"].value + row["after"].value == 2000
    assert answer.values["away_gpu_s"].to("h") == pytest.approx(2000 * 8 * 1.5)


@st.composite
def fleets(draw):
    """Jobs with any matrix of compatibility, and free nodes of each version."""
    matrix = draw(
        st.lists(st.tuples(st.integers(1, 60), st.sets(st.sampled_from(VERSIONS))), max_size=12)
    )
    jobs = [Job(f"job {n}", size, frozenset(runs)) for n, (size, runs) in enumerate(matrix)]
    return jobs, {version: draw(st.integers(0, 100)) for version in VERSIONS}


@pytest.mark.proves("S123")
@given(fleets())
def test_no_job_is_ever_placed_on_nodes_that_it_does_not_run_with(fleet):
    jobs, free = fleet
    placed = place(jobs, free)
    by_name = {job.name: job for job in jobs}
    for name, version in placed.on.items():
        assert version in by_name[name].runs_with
    taken = {v: sum(by_name[n].nodes for n, on in placed.on.items() if on == v) for v in VERSIONS}
    assert all(taken[version] <= free[version] for version in VERSIONS)
    # Everybody is somewhere, and who waits has no room left anywhere that would do.
    assert sorted([*placed.on, *placed.waiting]) == sorted(by_name)
    for name in placed.waiting:
        job = by_name[name]
        assert all(free[v] - taken[v] < job.nodes for v in job.runs_with)
    assert place(jobs, free) == placed


@pytest.mark.proves("S123")
@given(
    st.lists(
        st.tuples(st.integers(1, 900), st.integers(500, 600), st.integers(500, 600)),
        min_size=1,
        max_size=5,
    ),
    st.integers(520, 580),
    st.integers(520, 580),
)
def test_in_no_wave_does_a_job_run_outside_its_branches(jobs, old, new):
    answer = ask(
        "upgrade-waves",
        ROW
        | {
            "old_driver": old,
            "new_driver": new,
            "job_nodes": ",".join(str(size) for size, _, _ in jobs),
            "job_least": ",".join(str(low) for _, low, _ in jobs),
            "job_most": ",".join(str(high) for _, _, high in jobs),
        },
    ).answer
    for row in answer.table:
        for cell in filter(None, row["placed"].split(", ")):
            _, number, _, branch = cell.split()
            _, low, high = jobs[int(number) - 1]
            assert low <= int(branch) <= high


@pytest.mark.proves("S123")
def test_a_job_that_the_new_driver_breaks_is_told_and_waits_at_the_end():
    answer = ask("upgrade-waves", ROW).answer
    assert "job 2" in answer.table[-1]["waiting"]
    assert any("job 2 does not run with the new branch" in note for note in answer.notes)
    assert answer.values["rollback_s"].to("h") == pytest.approx(11 * 0.75)
    assert answer.values["at_risk_share"].value == pytest.approx(0.1)


def test_a_job_that_runs_with_neither_branch_makes_the_answer_a_no():
    answer = ask(
        "upgrade-waves", ROW | {"job_nodes": "10", "job_least": "600", "job_most": "700"}
    ).answer
    assert not answer.ok
    assert answer.table[0]["waiting"] == "job 1"


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(SpecError) as error:
        ask("upgrade-waves", {"job_nodes": "10, 20"})
    assert error.value.where == "job-nodes"


def test_fewer_nodes_than_canaries_take_one_wave():
    assert ask("upgrade-waves", ROW | {"canary_share": "100%"}).answer.values["waves"].value == 1
