import json

import pytest

from ridgeline.errors import SpecError
from ridgeline.serving.evaluate.cases import packaged
from ridgeline.serving.evaluate.reference import Reference, read, stored, write
from ridgeline.serving.policy.answers import Answer, Step

CASE = packaged()[0]
TOLD = Answer((Step("é", -0.25, {"é": -0.25, "bytes:\\xe9": -3.0}),), (7,), 3, (1, 2, 3))


def made(answer=TOLD):
    return Reference("m", "2026-01-01T00:00:00+00:00", (CASE,), (answer,), False, 2048)


@pytest.mark.parametrize("answer", [TOLD, Answer(TOLD.steps)])
def test_what_was_written_is_read(answer, tmp_path):
    path = tmp_path / "new" / "folder" / "good.json"
    write(made(answer), path)
    assert read(path) == made(answer)
    assert [one.name for one in path.parent.iterdir()] == ["good.json"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read"),
        ("{", "is no reference"),
        ("[]", "is no reference"),
        ('{"ridgeline_reference": 1}', "is no reference"),
        ('{"ridgeline_reference": 9}', "is of form 9"),
    ],
)
def test_another_file_is_no_reference_and_the_remedy_makes_one(text, problem, tmp_path):
    path = tmp_path / "r.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SpecError, match=problem) as raised:
        read(path)
    assert "--save" in raised.value.remedy


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="cannot be written"):
        write(made(), tmp_path / "file" / "r.json")


def test_a_versions_reference_is_under_the_state_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("RIDGELINE_STATE", str(tmp_path))
    write(made(), stored("0123456789ab"))
    told = json.loads((tmp_path / "references" / "0123456789ab.json").read_text())
    assert told["cases"][0]["body"] == CASE.body
