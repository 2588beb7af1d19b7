"""A user's file of claims: verdicts from what is stated, and errors that name the line."""

from pathlib import Path

import pytest

from ridgeline.errors import RidgelineError, SpecError
from ridgeline.platform.claims import Checked, Verdict
from ridgeline.platform.own_claims import check_own, find_own

WEIGHTS = '"model(""llama-3.1-70b"").weights_bytes(""bf16"")"'


def refused(folder: Path, *lines: str, header: str = "claim,working,unit,stated") -> RidgelineError:
    """The error of the first row that is refused."""
    checked = judged(folder, *lines, header=header)
    return next(one.error for one in checked if one.verdict is Verdict.REFUSED and one.error)


def judged(folder: Path, *lines: str, header: str = "claim,working,unit,stated") -> list[Checked]:
    file = folder / "mine.csv"
    file.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return check_own(file)


@pytest.mark.parametrize(
    ("line", "told", "value"),
    [
        (f"weights,{WEIGHTS},GB,140", "reproduced", "141.1 GB"),
        (f"weights,{WEIGHTS},GB,140 GB", "reproduced", "141.1 GB"),
        (f"weights,{WEIGHTS},GB,0.14 TB", "reproduced", "141.1 GB"),
        (f"weights,{WEIGHTS},GiB,131.4", "reproduced", "131.4 GiB"),
        (f"weights,{WEIGHTS},GB,35 GB", "off by -75 %", "141.1 GB"),
        (f"weights,{WEIGHTS},GB,>100", "reproduced", "141.1 GB"),
        (f"weights,{WEIGHTS},GB,<100 GB", "off by -29 %", "141.1 GB"),
        (f"weights,{WEIGHTS},GB,", "computed", "141.1 GB"),
        ("true,1 < 2,,true", "reproduced", "true"),
        ("false,1 < 2,,false", "wrong", "true"),
        ("some,3 * 4,widgets,12", "reproduced", "12 widgets"),
        ('some,"(3 * 4, 5)","apples, pears",12', "reproduced", "12 apples, 5 pears"),
    ],
)
def test_a_verdict_comes_from_what_is_stated(tmp_path: Path, line: str, told: str, value: str):
    (one,) = judged(tmp_path, line)
    assert (one.told, one.value) == (told, value)
    assert one.claim.id == "line 2"


def test_a_tolerance_of_its_own_and_a_column_called_formula(tmp_path: Path):
    header = "id,claim,formula,unit,stated,tolerance,note"
    loose, tight = judged(tmp_path, "a,x,103,,100,5 %,mine", "b,x,103,,100,0.01,", header=header)
    assert (loose.verdict, tight.verdict) == (Verdict.REPRODUCED, Verdict.OFF)
    assert (loose.claim.id, loose.claim.note) == ("a", "mine")
    assert find_own([loose, tight], "B") is tight


def test_lines_are_found_by_number_and_empty_ones_do_not_count(tmp_path: Path):
    checked = judged(tmp_path, "x,1,,1", "", ",,,", "y,2,,2")
    assert [one.claim.id for one in checked] == ["line 2", "line 5"]
    assert find_own(checked, "5").claim.claim == "y"
    with pytest.raises(SpecError, match="line 3"):
        find_own(checked, "line 3")


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path):
    file = tmp_path / "excel.csv"
    file.write_bytes("﻿claim,working,unit,stated\r\nx,1,,1\r\n".encode())
    assert check_own(file)[0].told == "reproduced"


@pytest.mark.parametrize(
    ("lines", "where", "problem"),
    [
        (["x,1 +,,1"], "line 2, working", "is not an expression"),
        (["x,1,,1", "y,nothing(1),,1"], "line 3, working", "nothing"),
        (["x,1,GB,1"], "line 2, working", "plain number"),
        ([f"x,{WEIGHTS},s,1"], "line 2, working", "not in s"),
        ([f"x,{WEIGHTS},GBs,1"], "line 2, working, unit", "GBs"),
        ([f"x,{WEIGHTS},GB,1 s"], "line 2, stated", "1 s"),
        ([f"x,{WEIGHTS},GB,dozens"], "line 2, stated", "dozens"),
        (["x,1 < 2,,3"], "line 2, stated", "true or false"),
        (["x,1,,true"], "line 2, stated", "a number"),
        (["x,,,1"], "line 2, working", "empty"),
        ([",1,,1"], "line 2, claim", "empty"),
        (["x,1,,1,2,3"], "line 2", "too many cells"),
        (["x,__import__('os'),,1"], "line 2, working", "__import__"),
        (["x,9**9**9**9,,1"], "line 2, working", "cannot be computed"),
        ([f"x,1,,{'9' * 400}"], "line 2, stated", "too large"),
        ([f"x,1,,{'9' * 5000}"], "line 2, stated", "too large"),
        (["x,1,,1e309"], "line 2, stated", "too large"),
        (["x,1,,>1e400"], "line 2, stated", "too large"),
        ([f"x,{WEIGHTS},GB,1e400 GB"], "line 2, stated", "too large"),
        ([f"x,{WEIGHTS},GB,1e300 TB"], "line 2, stated", "too large"),
        (['x,"q(""1e306 s"")",ns,1'], "line 2, working", "too large in ns"),
        (["x,read_s(1e9),s,1"], "line 2, working", "argument: 'bytes_per_s'"),
    ],
)
def test_a_mistake_is_told_with_its_line(
    tmp_path: Path, lines: list[str], where: str, problem: str
):
    error = refused(tmp_path, *lines)
    assert where in error.where
    assert problem in error.problem
    assert error.remedy


@pytest.mark.parametrize(
    ("lines", "where", "problem"),
    [(['"x,1,,1'], "line 2", "end of data"), ([], "mine.csv", "no claims")],
)
def test_what_is_no_table_is_refused_as_a_whole(
    tmp_path: Path, lines: list[str], where: str, problem: str
):
    with pytest.raises(SpecError) as caught:
        judged(tmp_path, *lines)
    assert where in caught.value.where
    assert problem in caught.value.problem


def test_a_row_that_is_refused_keeps_no_other_from_being_checked(tmp_path: Path):
    checked = judged(tmp_path, "x,1 +,,1", "y,2,,2", "z,3,,4", "u,1,,1,2")
    verdicts = [one.verdict for one in checked]
    assert verdicts == [Verdict.REFUSED, Verdict.REPRODUCED, Verdict.OFF, Verdict.REFUSED]


def test_a_number_far_beyond_ours_is_off_by_no_percentage(tmp_path: Path):
    (one,) = judged(tmp_path, "x,1e-200,,1e200")
    assert one.told == "off"


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("claim,working,unit", "no column stated"),
        ("claim,unit,stated", "the working"),
        ("claim,working,formula,unit,stated", "the working"),
        ("claim,working,unit,state", "state"),
        ("claim,working,unit,stated,stated", "twice"),
        ("", "no claims"),
    ],
)
def test_a_header_has_to_be_known(tmp_path: Path, header: str, problem: str):
    with pytest.raises(SpecError) as caught:
        judged(tmp_path, "x,1,,1", header=header) if header else judged(
            tmp_path, header="claim,working,unit,stated"
        )
    assert problem in caught.value.problem


@pytest.mark.parametrize("tolerance", ["abc", "1.5", "-1", "5 GB"])
def test_a_tolerance_is_a_share(tmp_path: Path, tolerance: str):
    header = "claim,working,unit,stated,tolerance"
    assert "tolerance" in refused(tmp_path, f"x,1,,1,{tolerance}", header=header).where


def test_a_file_that_is_none_is_an_error(tmp_path: Path):
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    for file in (tmp_path / "missing.csv", tmp_path, binary):
        with pytest.raises(SpecError) as caught:
            check_own(file)
        assert str(file) in caught.value.where
