import pytest

from ridgeline.serving.gateway.ledger_rows import Actual
from ridgeline.serving.gateway.own_count import Counted, Reckoned, reckon
from ridgeline.serving.gateway.sse import Details, Usage


def reckoned(usage: Usage | None, events: int, *, stream: bool = True) -> Reckoned:
    return reckon(usage, Counted(40, events), replica="r", status=200, stream=stream)


def test_the_replicas_usage_is_charged_as_it_is() -> None:
    usage = Usage(100, 20, Details(64))
    assert reckoned(usage, 20) == Reckoned(Actual("r", 200, 100, 64, 20, "usage"), "")


def test_zeros_are_a_count_too() -> None:
    assert reckoned(Usage(0, 0), 3).actual == Actual("r", 200, 0, 0, 0, "usage")
    assert reckoned(Usage(5, 1, Details(None)), 1).actual.cached_tokens == 0


def test_where_there_is_no_usage_the_own_count_is_charged_and_said() -> None:
    found = reckoned(None, 7)
    assert found.actual == Actual("r", 200, 40, 0, 7, "own count")
    assert "no usage" in found.finding


@pytest.mark.parametrize(
    ("said", "events", "is_strange"),
    [
        (100, 100, False),
        (17, 0, True),
        (16, 0, False),
        (64, 32, False),
        (65, 32, True),
        (30, 80, True),
    ],
)
def test_counts_far_apart_are_a_finding_and_change_no_charge(
    said: int, events: int, is_strange: bool
) -> None:
    found = reckoned(Usage(1, said), events)
    assert bool(found.finding) is is_strange
    assert found.actual.output_tokens == said


def test_a_whole_answer_has_no_events_to_compare_with() -> None:
    assert reckoned(Usage(1, 500), 0, stream=False).finding == ""


@pytest.mark.parametrize(
    "usage", [Usage(-5, -10), Usage(7, 10**30), Usage(10**12, 1), Usage(9, 9, Details(-1))]
)
def test_a_usage_that_cannot_be_is_none(usage: Usage) -> None:
    found = reckoned(usage, 7)
    assert found.actual == Actual("r", 200, 40, 0, 7, "own count")
    assert "cannot be" in found.finding


def test_more_of_an_answer_than_was_allowed_is_not_charged() -> None:
    allowed = Counted(40, 5, most_output_tokens=5)
    found = reckon(Usage(7, 10**9), allowed, replica="r", status=200, stream=True)
    assert (found.actual.output_tokens, found.actual.basis) == (5, "usage")
    assert "allowed" in found.finding
    exact = reckon(Usage(7, 5), allowed, replica="r", status=200, stream=True)
    assert (exact.actual.output_tokens, exact.finding) == (5, "")
