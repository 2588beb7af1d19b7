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


def test_a_direct_stream_passes_no_disk_and_takes_its_slower_end():
    # The disk is slower than the store here: whoever goes past it does not wait for it.
    given = ROW | {"source": "object-store", "store_bytes_per_s": "20GB/s"}
    direct = ask("cold-start", given | {"is_direct": "yes"}, LEDGER).answer
    assert direct.values["load_s"].value == pytest.approx(141.2 / 20, rel=0.001)
    assert "disk" not in direct.notes[0]
    overlapped = ask("cold-start", given | {"is_streamed": "yes"}, LEDGER).answer.values
    assert overlapped["load_s"].value == pytest.approx(141.2 / 7, rel=0.001)


def test_what_a_direct_stream_saves_is_told_among_the_fixes_and_is_what_the_start_is_shorter():
    for parallel in ("no", "yes"):
        for source in ("object-store", "disk", "host"):
            given = ROW | {"source": source, "is_parallel": parallel}
            copied, direct = (
                ask("cold-start", given | {"is_direct": choice}, LEDGER).answer
                for choice in ("no", "yes")
            )
            saved = copied.values["start_s"].value - direct.values["start_s"].value
            assert copied.values["direct_saves_s"].value == pytest.approx(saved, abs=1e-9)
            assert direct.values["direct_saves_s"].value == 0
            assert "straight to device memory" in copied.notes[1]


def test_a_source_nearer_shortens_a_direct_stream_by_what_is_told():
    given = ROW | {"is_direct": "yes"}
    far, near = (
        ask("cold-start", given | {"source": source}, LEDGER).answer
        for source in ("object-store", "disk")
    )
    saved = far.values["start_s"].value - near.values["start_s"].value
    assert far.table[1]["saves"].value == pytest.approx(saved)


def test_past_a_slow_disk_a_direct_stream_is_the_first_thing_to_fix():
    given = ROW | {
        "source": "object-store",
        "store_bytes_per_s": "20GB/s",
        "disk_bytes_per_s": "1GB/s",
    }
    assert "Fix first: stream the weights" in ask("cold-start", given, LEDGER).answer.says
