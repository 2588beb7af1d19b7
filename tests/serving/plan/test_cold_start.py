"""Cold start: the timeline, the hop to fix, the floor."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

LEDGER = {"params": "70.6B"}
ROW = {"disk_bytes_per_s": "7GB/s", "init": "10s", "warm_up": "20s", "graphs": "15s"}


@pytest.mark.proves("S064")
def test_141_gb_from_a_7_gb_s_disk_and_the_rest_take_65_s_and_the_disk_is_to_fix():
    answer = ask("cold-start", ROW, LEDGER).answer
    assert answer.values["weights_bytes"].to("GB") == pytest.approx(141, rel=0.01)
    assert answer.values["start_s"].value == pytest.approx(65, rel=0.01)
    assert "slowest hop the disk" in answer.says
    assert "Fix first: keep the weights one hop nearer" in answer.says
    assert answer.values["best_saving_s"].value == pytest.approx(141.2 / 7, rel=0.01)


@pytest.mark.proves("S064")
def test_the_timeline_has_every_stage_back_to_back():
    answer = ask("cold-start", ROW, LEDGER).answer
    end = 0.0
    for row in answer.table:
        assert row["begins"].value == pytest.approx(end)
        end += row["takes"].value
    assert end == pytest.approx(answer.values["start_s"].value)


@pytest.mark.proves("S064")
def test_from_an_object_store_that_hop_is_the_critical_one_and_takes_141_s():
    answer = ask("cold-start", ROW | {"source": "object-store"}, LEDGER).answer
    assert "slowest hop the object store" in answer.says
    assert answer.values["slowest_hop_s"].value == pytest.approx(141.2, rel=0.01)


@pytest.mark.proves("S064")
def test_the_floor_is_what_all_fixes_together_reach():
    fixed = ROW | {"source": "host", "is_parallel": "yes", "warm_up": "5s", "graphs": "0s"}
    floor = ask("cold-start", ROW, LEDGER).answer.values["floor_s"].value
    assert ask("cold-start", fixed, LEDGER).answer.values["start_s"].value == pytest.approx(floor)
    assert floor < 16
    slow = LEDGER | {"host_links_bytes_per_s": "7.06GB/s"}  # now the load outlasts the rest
    assert ask("cold-start", ROW, slow).answer.values["floor_s"].value == pytest.approx(20 + 5)


def test_what_a_fix_saves_is_what_the_start_is_shorter_with_it():
    for parallel in ("no", "yes"):
        given = ROW | {"is_parallel": parallel}
        far, near = (
            ask("cold-start", given | {"source": source}, LEDGER).answer
            for source in ("disk", "host")
        )
        saved = far.values["start_s"].value - near.values["start_s"].value
        assert far.table[1]["saves"].value == pytest.approx(saved)


def test_with_weights_in_memory_the_load_is_not_what_to_fix():
    answer = ask("cold-start", ROW | {"source": "host"}, LEDGER).answer
    assert "Fix first: keep compiled code" in answer.says


def test_a_stream_is_as_slow_as_its_slowest_hop():
    given = ROW | {"source": "object-store", "is_streamed": "yes"}
    values = ask("cold-start", given, LEDGER).answer.values
    assert values["load_s"].value == pytest.approx(141.2, rel=0.001)
