"""`ridgeline.plan`, and an answer as text, data and Markdown."""

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

import ridgeline
from ridgeline.errors import CatalogError, RidgelineError, SpecError, UnitError
from ridgeline.platform.plan import topics
from ridgeline.quantity import given
from ridgeline.topics import ask
from ridgeline.units import parse_unit
from ridgeline.working.data import as_data
from ridgeline.working.following import following, written
from ridgeline.working.formula import formula
from ridgeline.working.lines import length, plain
from ridgeline.working.markdown import markdown
from ridgeline.working.plan import Plan
from ridgeline.working.text import answer_lines, said


def test_importing_the_package_imports_neither_numpy_nor_a_topic():
    code = (
        "import sys, ridgeline; ridgeline.plan\n"
        "print([n for n in ('numpy', 'rich', 'yaml', 'ridgeline.topics') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_plan_takes_what_the_command_line_takes():
    found = ridgeline.plan("users-per-node", context="16k", gpus=8, set={"memory": "80GB"})
    assert isinstance(found, Plan)
    assert found.asked.inputs["context_tokens"].value == 16384
    assert found["h100-sxm.memory_bytes"].value == 80e9
    assert found["per_user"].value == found.values["per_user_bytes"].value


@pytest.mark.parametrize(
    ("topic", "given", "error"),
    [
        ("users-per-nod", {}, SpecError),
        ("users-per-node", {"contxt": "8k"}, SpecError),
        ("users-per-node", {"context": "8 GB"}, UnitError),
        ("users-per-node", {"model": "llama-9"}, CatalogError),
        ("users-per-node", {"gpus": 2.5}, SpecError),
        ("users-per-node", {"set": {"memori": "80GB"}}, SpecError),
        ("users-per-node", {"set": {"memory_bytes": "80 s"}}, UnitError),
    ],
)
def test_what_is_wrong_is_told_with_where_and_remedy(topic, given, error):
    with pytest.raises(error) as caught:
        ridgeline.plan(topic, **given)
    assert caught.value.where
    assert caught.value.remedy


def test_a_plan_prints_as_the_command_does(pump):
    found = Plan(ask(pump))
    assert str(found) == plain(answer_lines(found.asked))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(found)
    assert found.says in console.export_text()


def test_a_plan_explains_sweeps_and_varies(pump):
    found = Plan(ask(pump, {"batch": "20"}))
    assert found.why().startswith("total_s = ")
    assert found.why("step").startswith("step = max(")
    assert found.sweep("batch=1:16").knee.index is not None
    assert found.sensitivity().swings[0].name == "batch"
    assert found.to_dict() == as_data(found.asked)
    assert found.to_markdown() == markdown(found.asked)
    with pytest.raises(SpecError):
        found["nothing at all"]


def test_the_answer_comes_first_then_values_what_binds_and_what_to_know(pump):
    text = plain(answer_lines(ask(pump, {"spare": "2 s"}), following="ridgeline plan …"))
    lines = text.splitlines()
    assert lines[0] == "4 s for 4 steps with 0.5"
    assert lines[1].split()[:3] == ["total_s", "4", "s"]
    assert "  moving binds step_s: 4 s; computing 2 s" in lines
    assert lines[-3:] == [
        "Folklore says otherwise.",
        "spare was given and does not matter here: the answer does not use it.",
        "ridgeline plan …",
    ]


def test_what_binds_is_not_told_where_a_number_only_keeps_a_bound(pump):
    from ridgeline.quantity import given, largest
    from ridgeline.working.binding import choices
    from ridgeline.working.text import is_telling

    bounded = largest(count=given(3, "", name="n") * 2, least=0)
    assert [is_telling(one, ask(pump)) for one in choices(bounded)] == [False]


def test_the_data_holds_inputs_values_notes_table_and_the_whole_derivation(pump):
    data = json.loads(json.dumps(as_data(ask(pump, {"batch": "20"}, {"one_s": "0.3 s"}))))
    assert data["says"] == "6 s for 20 steps with 0.5"
    assert data["inputs"]["batch"] == {
        "value": 20, "base_unit": "", "unit": "steps", "text": "20 steps", "given": True,
        "doc": "Batch.", "option": "--batch",
    }  # fmt: skip
    assert data["set"] == {"one_s": "0.3 s"}
    assert data["values"]["total_s"]["base_unit"] == "s"
    assert data["values"]["total_s"]["binds"]["step_s"] == "computing"
    nodes = {node["name"]: node for node in data["derivation"] if node["name"]}
    assert nodes["step_s"]["options"] == ["moving", "computing"]
    assert nodes["step_s"]["binds"] == "computing"
    assert nodes["computing_s"]["used"]
    assert not nodes["size_bytes"]["used"]
    assert nodes["share"]["interval"] == [0.4, 0.9]
    assert nodes["pump-9.rate_bytes_per_s"]["provenance"] == "datasheet"
    assert data["table"] == [{"mode": "fast", "time": {
        "value": 6, "base_unit": "s", "unit": "s", "text": "6 s"}}]  # fmt: skip
    assert data["notes"] == ["Folklore says otherwise."]


def test_a_number_that_is_not_finite_is_null(pump):
    from ridgeline.working.data import bare

    assert [bare(float("inf")), bare(float("nan")), bare(2.0), bare(0.5)] == [None, None, 2, 0.5]


def test_markdown_has_sentence_values_inputs_and_derivation(pump):
    page = markdown(ask(pump, {"batch": "20"}), {"Sweep": [[("points", "")]]})
    assert page.startswith("# pump\n\n**10 s for 20 steps with 0.5**")
    assert "| `batch` | 20 steps | you |" in page
    assert "| `share` | 0.5 | default |" in page
    assert "## Sweep\n\n```text\npoints\n```" in page
    assert "## Derivation\n\n```text\ntotal_s = " in page
    assert all(line.count("|") >= 3 for line in page.splitlines() if line.startswith("|"))


def test_what_to_ask_next_are_options_that_work_on_this_answer(pump):
    line = following(ask(pump))
    assert line == (
        "ridgeline plan pump … --why | --sweep size=1GB:16GB | --sensitivity | --set mode=slow"
    )


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(2048, "tokens", "2k"), (1000, "tokens", "1000"),
     (3.75e12, "tokens", "3.75T"), (4e9, "GB", "4GB"), (0.25, "", "0.25"),
     (0.5, "%", "50%"), (50e9, "Gb/s", "400Gb/s")],
)  # fmt: skip
def test_a_number_is_suggested_as_a_person_types_it(value, unit, text):
    assert written(value, parse_unit(unit)) == text


def test_a_sentence_reads_bools_and_lists_as_words(pump):
    from ridgeline.working.text import worded

    asked = ask(pump, {"sizes": "3,4", "extra": "yes"})
    assert worded(asked.inputs["sizes"]) == "3, 4"
    assert worded(asked.inputs["extra"]) == "yes"
    assert said(asked) == "4 s for 4 steps with 0.5"


def test_a_wide_table_goes_on_below_and_fits(pump):
    from ridgeline.working.lines import columns

    head = ["name of the row", *(f"a_long_name_of_column_{i}" for i in range(8))]
    rows = [["first row", *("12,345 tokens/s" for _ in range(8))]] * 2
    lines = columns(head, rows, 80, text=[True] + [False] * 8)
    assert max(length(line) for line in lines) <= 80
    assert plain(lines).count("12,345 tokens/s") == 16
    assert plain(lines).count("first row") > 2


def test_what_changes_nothing_is_formed_into_no_formula(pump):
    size = given("4 GB", name="size_bytes")
    assert formula((size * 1).named("a_bytes")) == "size_bytes"
    assert formula((size - 0).named("a_bytes")) == "size_bytes"
    assert formula((size * 1 * 2).named("a_bytes")) == "size_bytes × 2"


def test_a_value_that_is_set_and_leads_to_nothing_else_is_told(pump):
    told = plain(answer_lines(ask(pump, {}, {"used_s": "3 s"})))
    assert "used_s was given and does not matter here: it is printed" in told
    assert "was given" not in plain(answer_lines(ask(pump, {}, {"total_s": "3 s"})))


def test_text_data_and_page_say_the_same_rows_and_remarks():
    topics()
    asked = ask("users-per-node", {"context_tokens": "200k"}, {"params": "70"})
    for page in (plain(answer_lines(asked, 200)), markdown(asked), Plan(asked).__str__()):
        text = " ".join(page.split())
        assert "Llama 3.1 70B on H100 SXM5 80 GB" in text
        assert all(remark in text for remark in asked.remarks)
    assert len(asked.remarks) == 2
    assert as_data(asked)["about"] == "Llama 3.1 70B on H100 SXM5 80 GB"
    assert as_data(asked)["remarks"] == list(asked.remarks)


def test_numbers_far_out_are_answered_or_refused_and_never_a_crash(pump):
    for number in ("1e308 GB", "1e-300 GB"):
        try:
            asked = ask(pump, {"delay_s": "1e308 s", "spare": number.replace("GB", "s")})
            assert answer_lines(asked, following=following(asked))
        except RidgelineError:
            continue
