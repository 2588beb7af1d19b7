"""Ledger row S086: what holds a tenant that grows ten times, and what does not."""

import re
from functools import cache
from pathlib import Path

import pytest

from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.simulate.noisy import Alike, Study, study, table

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "fairness.md"
studied = cache(lambda seed: study(seed=seed))


def moved(found: Study) -> dict[str, float]:
    return {way.by: way.moved for way in found.ways}


@pytest.mark.proves("S086")
@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_ten_times_the_tokens_move_others_little_with_token_limits_and_much_with_request_limits(
    seed: int,
) -> None:
    """One tenant at 10x tokens: others' p99 moves under 10% and over 100%."""
    found = studied(seed)
    by = moved(found)
    assert by["token limits"] < 0.10
    assert by["request limits"] > 1.00
    # Fair turns bound the noise, but they do not stop a tenant from using what nobody else waits
    # for: slots that it holds, and steps that its long prompts make longer.
    assert by["both of these"] > 1.00
    assert by["fair turns"] > 1.00
    assert by["fair turns"] < by["request limits"]
    ways = {way.by: way for way in found.ways}
    assert all(way.others_refused == 0 for way in found.ways)
    assert ways["request limits"].noisy_refused == 0  # it sends no more requests than before
    assert ways["request limits"].noisy_tokens == pytest.approx(10.0)
    assert ways["token limits"].noisy_tokens < 1.1
    assert ways["token limits"].level == "isolated"
    assert ways["request limits"].level == "not isolated"


def test_the_quota_is_what_it_used_before() -> None:
    assert Alike().quota() == Limits(input_tokens_per_minute=33_000, output_tokens_per_minute=7_920)
    assert "33000 input and 7920 output tokens a minute" in studied(1).fix


def test_the_guide_prints_what_comes_out() -> None:
    """Within a little: another numpy may draw other sizes."""
    printed = {line.split("|")[1]: line for line in GUIDE.read_text().splitlines() if "|" in line}
    number = re.compile(r"([-+]?\d+(?:\.\d+)?)( s|%|x)")
    for line in table(studied(1)).splitlines():
        said = number.findall(printed[line.split("|")[1]])
        found = number.findall(line)
        assert [unit for _, unit in said] == [unit for _, unit in found]
        for (ours, unit), (theirs, _) in zip(found, said, strict=True):
            assert float(ours) == pytest.approx(
                float(theirs), rel=0.2, abs=5 if unit == "%" else 0.05
            )
