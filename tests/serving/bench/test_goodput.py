import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import SpecError
from ridgeline.serving.bench.goodput import Slo, goodput, parse_slo
from ridgeline.serving.bench.sample import Answer, Sample


def sample(ttft_s: float, tpot_s: float, *, lag_s: float = 0.0, error: str = "") -> Sample:
    first_s = lag_s + ttft_s
    times = (first_s, first_s + tpot_s)
    return Sample(0, 0.0, 1, 2, Answer(lag_s, times[-1], times, 1, 2, error=error))


def test_objectives_are_read_with_their_units():
    assert parse_slo("ttft=500ms, tpot=50ms") == Slo(ttft_s=0.5, tpot_s=0.05)
    assert parse_slo("e2e=1.5s") == Slo(e2e_s=1.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ttft", "ttft"),
        ("ttft=", "ttft"),
        ("ttft=500", "with its unit"),
        ("ttft=-5ms", "ttft"),
        ("speed=5ms", '"speed" is measured'),
        ("ttft=1s,ttft=2s", "twice"),
        ("", '"" is measured'),
        ("ttft=1s,", '"" is measured'),
    ],
)
def test_bad_objectives_are_refused_by_part_with_a_remedy(text, said):
    with pytest.raises(SpecError) as refused:
        parse_slo(text)
    assert refused.value.where == "--slo"
    assert said in refused.value.problem
    assert "ttft=500ms,tpot=50ms" in refused.value.remedy


@pytest.mark.parametrize("text", ["ttft=500ms", "ttft=500ms,tpot=50ms,e2e=2000ms"])
def test_an_objective_prints_as_the_option_it_came_from(text):
    assert parse_slo(text).option() == text


def test_both_objectives_must_be_met():
    slo = Slo(ttft_s=0.5, tpot_s=0.05)
    samples = [sample(0.4, 0.04), sample(0.6, 0.04), sample(0.4, 0.06), sample(0.6, 0.06)]
    seen = goodput(samples, slo, 2.0)
    assert (seen.good, seen.total, seen.share, seen.per_s) == (1, 4, 0.25, 0.5)


def test_failed_requests_count_as_missed():
    seen = goodput([sample(0.1, 0.01), sample(0.1, 0.01, error="timeout")], Slo(), 1.0)
    assert seen.share == 0.5


def test_the_user_waits_from_the_scheduled_moment():
    assert Slo(ttft_s=0.5).met_by(sample(0.4, 0.01))
    assert not Slo(ttft_s=0.5).met_by(sample(0.4, 0.01, lag_s=0.2))


def test_one_token_cannot_miss_its_pace():
    answer = Answer(0.0, 0.2, (0.1,), 1, 1)
    assert Slo(tpot_s=1e-6).met_by(Sample(0, 0.0, 1, 1, answer))


def test_nothing_sent_is_no_goodput():
    assert goodput([], Slo(), 0.0).share == 0.0


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 0.2)), min_size=1), st.floats(0, 2))
def test_a_looser_objective_never_lowers_goodput(measured, bound_s):
    samples = [sample(ttft_s, tpot_s) for ttft_s, tpot_s in measured]
    tight = goodput(samples, Slo(ttft_s=bound_s, tpot_s=0.1), 1.0)
    loose = goodput(samples, Slo(ttft_s=bound_s + 0.1, tpot_s=0.1), 1.0)
    assert 0 <= tight.share <= loose.share <= 1
