"""What a scrape says."""

from prometheus_client.parser import text_string_to_metric_families

from ridgeline.serving.engine.messages import Output, Started, Stats
from ridgeline.serving.engine.metrics import Histogram, Metrics, Watch

STARTED = Started(
    max_model_len=100,
    blocks=64,
    block_size=16,
    vocab_size=300,
    dtype="bf16",
    threads=2,
    kernels="none",
    stages_s={},
)
STATS = Stats(running=3, waiting=2, kv_usage=0.25, prompt_tokens=70, prefix_hits=16)


def scrape(metrics: Metrics, stats: Stats = STATS) -> dict[tuple[str, str], float]:
    """Values by (name, the label that tells them apart)."""
    text = metrics.text(stats, STARTED, prefix_caching=True).decode()
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["model_name"] == "m"
            told = sample.labels.get("le") or sample.labels.get("finished_reason") or ""
            values[sample.name, told] = sample.value
    return values


def test_names_and_values_are_vllms() -> None:
    values = scrape(Metrics("m"))
    assert values["vllm:num_requests_running", ""] == 3
    assert values["vllm:num_requests_waiting", ""] == 2
    assert values["vllm:kv_cache_usage_perc", ""] == 0.25
    assert values["vllm:prompt_tokens_total", ""] == 70
    assert values["vllm:prefix_cache_hits_total", ""] == 16
    for name in ("generation_tokens", "num_preemptions", "prefix_cache_queries"):
        assert values[f"vllm:{name}_total", ""] == 0
    assert values["vllm:cache_config_info", ""] == 1
    values = scrape(Metrics("m"), Stats(drafts=5, draft_tokens=20, accepted_tokens=9))
    assert values["vllm:spec_decode_num_drafts_total", ""] == 5
    assert values["vllm:spec_decode_num_draft_tokens_total", ""] == 20
    assert values["vllm:spec_decode_num_accepted_tokens_total", ""] == 9
    for reason in ("stop", "length", "abort"):
        assert values["vllm:request_success_total", reason] == 0


def test_histograms_count_what_was_observed() -> None:
    metrics = Metrics("m")
    watch = Watch(metrics, choices=1, began_s=0.0)
    watch.arrived([(0, Output("r", 0, [1]))])
    watch.arrived([(0, Output("r", 0, [2, 3]))])
    watch.finished(0, "stop")
    watch.ended()
    values = scrape(metrics)
    assert values["vllm:time_to_first_token_seconds_count", ""] == 1
    assert values["vllm:inter_token_latency_seconds_count", ""] == 1
    assert values["vllm:time_per_output_token_seconds_count", ""] == 1
    assert values["vllm:request_time_per_output_token_seconds_count", ""] == 1
    assert values["vllm:e2e_request_latency_seconds_count", ""] == 1
    assert values["vllm:request_success_total", "stop"] == 1


def test_a_bound_belongs_to_its_own_bucket_and_buckets_add_up() -> None:
    histogram = Histogram([1.0, 2.0])
    for value_s in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(value_s)
    assert histogram.buckets() == [("1.0", 2.0), ("2.0", 4.0), ("+Inf", 5.0)]
    assert histogram.sum_s == 14.0


def test_a_model_name_cannot_break_out_of_its_label() -> None:
    text = Metrics('m"} 1\nevil 1').text(STATS, STARTED, prefix_caching=True).decode()
    assert "\nevil" not in text
