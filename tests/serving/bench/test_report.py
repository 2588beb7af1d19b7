import json

import pytest

from ridgeline.errors import SpecError
from ridgeline.serving.bench.drive import Driven
from ridgeline.serving.bench.report import Report, Setting, report
from ridgeline.serving.bench.sample import Answer, Sample
from ridgeline.serving.bench.strain import Strain

SETTING = Setting("http://server", "m", "chat", "2 workers", True, 2.0, "sizes", 1)
AT_EASE = Strain(0.1, 0.0, 0.0)


def sample(index: int = 0, **answer) -> Sample:
    seen = {"sent_s": 0.0, "ended_s": 2.0, "token_times_s": (1.0, 1.5, 2.0)}
    seen |= {"prompt_tokens": 10, "output_tokens": 3} | answer
    return Sample(index, 0.0, 10, 3, Answer(**seen))


def summed(*samples: Sample, setting: Setting = SETTING, strain: Strain = AT_EASE) -> Report:
    return report(Driven(samples, strain), setting, None)


def test_rates_are_over_the_time_to_the_last_answer_and_count_whole_answers():
    lost = sample(1, ended_s=4.0, token_times_s=(), error="timeout", output_tokens=None)
    seen = summed(sample(), lost)
    assert seen.duration_s == 4.0
    assert (seen.completed, seen.failed, seen.errors) == (1, 1, {"timeout": 1})
    assert seen.requests_per_s == 0.25
    assert seen.output_tokens_per_s == 0.75
    assert seen.ttft.count == seen.e2e.count == 1
    assert seen.goodput.share == 0.5


def test_the_gaps_of_all_answers_are_in_one_spread():
    seen = summed(sample(), sample(1, token_times_s=(1.0, 1.1, 1.9)))
    assert seen.itl.count == 4
    assert seen.itl.max == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"output_tokens": None}, "without usage"),
        ({"output_tokens": 6}, "2.00 tokens came in a piece"),
        ({"output_tokens": 2}, "one of the two is wrong"),
        ({"prompt_tokens": 14}, "prompts had 14.0 tokens, not 10.0"),
        ({"token_times_s": (1.0,), "output_tokens": 1}, "answers ended after 1 of 3 tokens"),
        ({"cached_tokens": 5}, "50.0 % of prompt tokens came from the server's prefix cache"),
    ],
)
def test_what_makes_numbers_misleading_is_noted(answer, said):
    assert any(said in note for note in summed(sample(**answer)).notes)


def test_a_run_as_asked_needs_no_note():
    assert summed(sample()).notes == ()


def test_the_clients_own_lateness_is_noted_where_it_shows_in_the_tail():
    assert "late at p99" in summed(sample(), strain=Strain(0.1, 0.3, 0.0)).notes[0]


def test_the_servers_words_about_an_error_are_kept():
    said = summed(sample(error="http 400", detail="too long")).notes
    assert "http 400: too long" in said


def test_a_saved_report_reads_back_the_same(made_report):
    made = made_report()
    said = json.loads(json.dumps(made.to_dict(samples=True)))
    assert len(said["samples"]) == 100
    assert Report.from_dict(said, where="file") == made


def test_json_says_rates_and_shares(made_report):
    said = made_report(good=95, tokens_per_s=500).to_dict()
    assert said["output_tokens_per_s"] == pytest.approx(500)
    assert said["goodput"]["share"] == 0.95
    assert said["slo"] == {"ttft_s": 0.5, "tpot_s": 0.05}
    assert "samples" not in said


def test_what_is_no_saved_report_is_refused():
    with pytest.raises(SpecError, match="is no saved report"):
        Report.from_dict({"schema": "ridgeline.bench.sweep/1"}, where="file")
