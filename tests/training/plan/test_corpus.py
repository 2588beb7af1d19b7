"""Fifteen trillion tokens from crawl to shards."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


@pytest.mark.proves("S137")
@pytest.mark.parametrize(
    ("width", "vocabulary", "ids"), [("2", 65536, 30e12), ("4", 128256, 60e12)]
)
def test_15t_tokens_are_60_tb_of_text_30_or_60_tb_of_ids_and_10240_gpus_read_1_66m_tokens_a_second(
    width: str, vocabulary: int, ids: float
):
    asked = ask(
        "corpus-pipeline",
        {"tokens": "15T", "id_width": width, "vocabulary": vocabulary, "gpus": 10240},
        {"active_params": "405.85B", "bf16_flop_per_s": "989 TFLOP/s"},
    )
    values = asked.answer.values
    assert values["clean_bytes"].value == pytest.approx(60e12)
    assert values["id_bytes"].value == pytest.approx(ids)
    assert values["tokens_per_s"].value == pytest.approx(1.66e6, rel=0.01)
    assert values["kept_share"].value == pytest.approx(0.02)
    assert [row["stage"] for row in asked.answer.table] == [
        "extract",
        "filter",
        "near-duplicates",
        "tokenize",
    ]
    assert all("cores" in row and "writes" in row for row in asked.answer.table)


def test_tokenizing_takes_700_core_days_and_is_not_where_the_time_goes():
    asked = ask("corpus-pipeline", {"tokenize_bytes_per_s": "1 MB/s", "deadline_s": "14d"})
    values = asked.answer.values
    assert values["tokenize_core_s"].value / 86400 == pytest.approx(694.4, rel=0.001)
    assert values["tokenize_cores"].value == pytest.approx(49.6, rel=0.001)
    share = {row["stage"]: row["share_of_work"].value for row in asked.answer.table}
    assert share["tokenize"] < 0.1
    assert sum(share.values()) == pytest.approx(1)


def test_two_bytes_for_a_vocabulary_of_128k_are_refused():
    with pytest.raises(SpecError, match="2 bytes number 65,536 tokens") as caught:
        ask("corpus-pipeline", {"id_width": "2"})
    assert caught.value.remedy == "3 or 4"


def test_more_clean_text_than_the_crawl_holds_is_refused():
    with pytest.raises(SpecError, match="do not come out of") as caught:
        ask("corpus-pipeline", {"raw_bytes": "100TB"})
    assert caught.value.where == "raw"
