"""Every claim of the ledger is recomputed, and what depends on a number moves with it."""

import re
import subprocess
import sys
from functools import lru_cache

import pytest

from ridgeline import ledger
from ridgeline.catalog.rows import overlay
from ridgeline.errors import SpecError
from ridgeline.platform.claims import (
    NO_WORKING,
    Checked,
    Verdict,
    check_ledger,
    difference,
    find,
    in_unit,
    of_system,
    shown,
)
from ridgeline.platform.expressions import evaluate
from ridgeline.platform.figures import figure
from ridgeline.quantity import Quantity

CLAIMS = {claim.id: claim for claim in ledger.claims()}
STRUCTURAL = "structural (a count, nothing to compute)"
PUBLISHED = "reproduced (published value)"


@lru_cache
def checked() -> dict[str, Checked]:
    return {one.claim.id: one for one in check_ledger()}


@pytest.mark.parametrize("name", [one for one in CLAIMS if one in ledger.workings()])
def test_it_comes_out_within_one_percent_of_the_ledger(name: str):
    one = checked()[name]
    assert one.verdict is not Verdict.FAILED, one.why


def test_what_is_not_computed_are_counts_and_published_inputs_and_nothing_else():
    missing = [one for one in checked().values() if one.verdict is Verdict.NOT_COMPUTED]
    assert [one.claim.id for one in missing if one.why == NO_WORKING] == []
    assert {one.claim.verdict for one in missing} <= {STRUCTURAL, PUBLISHED}


def test_every_count_is_reported_as_not_computed():
    counts = {name for name, claim in CLAIMS.items() if claim.verdict == STRUCTURAL}
    assert counts <= {
        one.claim.id for one in checked().values() if one.verdict is Verdict.NOT_COMPUTED
    }


def test_published_inputs_that_the_catalog_holds_are_compared_with_it():
    published = {name for name, claim in CLAIMS.items() if claim.verdict == PUBLISHED}
    read = {
        name
        for name in published & set(ledger.workings())
        if any("." in step.name for step in checked()[name].inputs)
    }
    assert read >= {"C002", "C003", "C004", "C011", "C015", "C016", "C029", "C093", "C133", "C243"}


def test_every_working_is_of_a_claim_and_none_is_a_bare_number():
    workings = ledger.workings()
    assert set(workings) <= set(CLAIMS)
    plain = re.compile(r"[-+]?[0-9.,]+(e[-+]?[0-9]+)?")
    assert [name for name, one in workings.items() if plain.fullmatch(one.expression)] == []


def test_no_working_holds_the_number_that_it_should_give():
    found = []
    for name, one in checked().items():
        if one.working is None or not figure(CLAIMS[name].computed).numbers:
            continue
        wanted = figure(CLAIMS[name].computed).numbers[0]
        written = figure(one.working.expression).numbers
        computed = [value for value in one.values if not isinstance(value, bool)]
        if wanted in written and wanted in computed and wanted not in (0, 1, 2):
            found.append(name)
    assert set(found) == set(SAME_NUMBER)


#: Claims whose result happens to be one of their inputs, and why that is so.
SAME_NUMBER = {
    "C127": "300 adapters, one GPU each",
    "C183": "intensity in bf16 is the batch",
    "C200": "a measurement, which can only be compared with itself",
    "C280": "all of the four sequences finish",
    "C287": "three tasks need three CPUs each in the same example",
    "C317": "intensity in bf16 is the tokens of the pass",
}


def test_the_usual_number_is_wrong_where_the_ledger_says_so():
    told = {
        name
        for name, claim in CLAIMS.items()
        if any(word in claim.verdict for word in ("wrong", "off by", "fails"))
    }
    assert {name for name, one in checked().items() if one.is_folklore_wrong} == told


def test_how_far_the_usual_number_is_off_is_what_the_ledger_says():
    for name, one in checked().items():
        told = re.search(r"off by ([-+]\d+)%", CLAIMS[name].verdict)
        if told:
            assert one.off == pytest.approx(float(told[1]) / 100, abs=0.02), name
            assert f"off by {100 * one.off:+.0f} %" in one.told


def test_every_wrong_number_has_a_reason_of_ours_beside_the_ledgers():
    wrong = {name for name, one in checked().items() if one.is_folklore_wrong}
    assert wrong <= set(ledger.folklore()) <= set(ledger.workings())
    assert [name for name in wrong if not checked()[name].why or not CLAIMS[name].note] == []


def test_the_claims_that_people_argue_about():
    say = {name: (one.value, one.told) for name, one in checked().items()}
    assert say["C196"] == ("2,048 endpoints", "wrong, off by +100 %")
    assert say["C204"][1] == "off by +100 %"
    assert checked()["C204"].values == (9,)
    assert say["C279"] == ("17 preemptions, 0 completed", "reproduced")
    assert say["C287"] == ("true (3, 2 tasks)", "reproduced")
    assert say["C255"] == ("false (3 ms)", "wrong")


#: By hand, from the inputs and formulas of the ledger: what has 3.35 TB/s, H100's step or its
#: ridge in it. C039 compares B200 with H100 per dollar; C038 halves bytes and needs no bandwidth.
OF_H100_BANDWIDTH = {
    "C031", "C037", "C039", "C075", "C077", "C090", "C177", "C180", "C181", "C182", "C184",
    "C185", "C188", "C195", "C274", "C298", "C323",
}  # fmt: skip


def test_ten_percent_more_bandwidth_of_h100_moves_exactly_the_claims_that_depend_on_it():
    faster = {
        "id": "h100-sxm",
        "memory_bandwidth_bytes_per_s": 3.35e12 * 1.1,
        "source": "a test",
        "read_on": "2026-11-30",
    }
    before = checked()
    with overlay({"accelerators": [faster]}):
        after = {one.claim.id: one for one in check_ledger()}
    moved = {name for name in CLAIMS if before[name].values != after[name].values}
    built_on = {
        name
        for name, one in before.items()
        if any(step.name == "h100-sxm.memory_bytes_per_s" for step in one.inputs)
    }
    assert moved == built_on == OF_H100_BANDWIDTH
    assert after["C184"].values[0] == pytest.approx(before["C184"].values[0] / 1.1)
    assert after["C075"].verdict is Verdict.FAILED
    assert "where the ledger has 4.794 ms" in after["C075"].why


def test_the_text_of_the_ledgers_formula_is_never_evaluated(monkeypatch: pytest.MonkeyPatch):
    claims = [
        ledger.Claim(**{slot: getattr(one, slot) for slot in one.__slots__} | {"formula": "1/0"})
        for one in CLAIMS.values()
    ]
    assert [one.values for one in check_ledger(claims)] == [
        one.values for one in checked().values()
    ]


def test_verdicts_are_the_same_in_every_process():
    code = (
        "from ridgeline.platform.claims import check_ledger\n"
        "print([one.values for one in check_ledger()])"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert runs == {f"{[one.values for one in checked().values()]}\n"}


@pytest.mark.parametrize(
    ("values", "text", "fault"),
    [
        ((1433.0,), "1,433 L/min", ""),
        ((1450.0,), "1,433 L/min", "1,450 where"),
        ((17.0, 0.0), "17 preemptions, 0 completed", ""),
        ((17.0, 1.0), "17 preemptions, 0 completed", "1 where"),
        ((17.0, 0.0, 0.0), "17 preemptions, 0 completed", "3 numbers"),
        ((True, 3.0, 2.0), "true (3 and 2 tasks)", ""),
        ((False, 3.0, 2.0), "true (3 and 2 tasks)", "false"),
        ((True, 4.0, 2.0), "true (3 and 2 tasks)", "4 where"),
        ((False, 1.76, 4.79), "false (1.8 ms against 4.8 ms)", ""),
        ((False, 1.9), "false (1.8 ms against 4.8 ms)", "1.9 where"),
        ((3.0,), "true (3 and 2 tasks)", "3 where"),
        ((True,), "2.275 x", "true where"),
        ((28.3,), "28.26 x (median)", ""),
        ((0.03941,), "0.03941", ""),
        ((1.76,), "1.8 ms", "1.76 where"),
    ],
)
def test_values_are_compared_with_the_figure(
    values: tuple[float | bool, ...], text: str, fault: str
):
    found = difference(values, figure(text), 0.01)
    assert found.startswith(fault)
    assert bool(found) is bool(fault)


@pytest.mark.parametrize(
    ("expression", "unit", "told"),
    [
        ('q("2.5e9 B")', "GB", "2.5 GB"),
        ('8000 * q("2190 h")', "M GPU h", "17.52 M GPU h"),
        ('q("1.8e7 USD")', "$M", "18 $M"),
        ("(17, 0)", "preemptions, completed", "17 preemptions, 0 completed"),
        ('(1 > 2, q("1.76 ms"), q("4.8 ms"))', "ms", "false (1.76, 4.8 ms)"),
        ("3 < 4", "", "true"),
        ("3 * 4", "widgets", "12 widgets"),
        ('q("35 %")', "%", "35 %"),
        ("1.22e-10", "", "1.22e-10"),
    ],
)
def test_values_are_told_in_the_unit_of_the_working(expression: str, unit: str, told: str):
    assert shown(in_unit(evaluate(expression), unit, "here"), unit) == told


@pytest.mark.parametrize(
    ("expression", "unit"),
    [("1", "GB"), ('q("1 GB")', ""), ('q("1 GB")', "s"), ('q("1 B")', "GBs")],
)
def test_a_unit_that_does_not_fit_is_an_error(expression: str, unit: str):
    with pytest.raises(SpecError):
        in_unit(evaluate(expression), unit, "here")


def test_a_claim_is_found_by_its_id_and_a_system_by_its_own():
    assert find("c196").id == "C196"
    assert [one.id for one in of_system("s100")] == ["C196", "C197"]
    with pytest.raises(SpecError, match="C999"):
        find("C999")
    with pytest.raises(SpecError, match="S999"):
        of_system("S999")


def test_a_working_that_fails_is_our_fault_and_says_so(monkeypatch: pytest.MonkeyPatch):
    broken = {"C101": ledger.Working("C101", "mean_gap_s(1)", "h", "rest.csv, line 3")}
    monkeypatch.setattr(ledger, "workings", lambda: broken)
    (one,) = check_ledger([CLAIMS["C101"]])
    assert one.verdict is Verdict.FAILED
    assert one.is_fault
    assert "rest.csv, line 3" in one.why
    (other,) = check_ledger([CLAIMS["C103"]])
    assert other.why == NO_WORKING
    assert other.is_fault


def test_numbers_keep_their_derivation():
    for one in checked().values():
        if one.worked is not None and one.working and "accelerator(" in one.working.expression:
            roots = [root for root in one.worked.roots if isinstance(root, Quantity)]
            assert roots, one.claim.id
