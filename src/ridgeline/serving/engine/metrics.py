"""A replica's metrics, with vLLM's names, so that dashboards and routers made for it work.

The front observes times here as outputs arrive; gauges and totals are the engine's own
(`messages.Stats`). Text is made only when somebody scrapes: a histogram here is a list of counts,
an order of magnitude cheaper to observe than prometheus_client's, and this is the hot path.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from ridgeline.serving.engine.messages import Output, Started, Stats

_TTFT_S = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
_TOKEN_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0)
_REQUEST_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 480.0)
_FINISHES = ("stop", "length", "abort", "error")


class Histogram:
    """Counts of observations by upper bound, and their sum."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_s = tuple(bounds_s)
        self._counts = [0] * (len(self._bounds_s) + 1)
        self._sum_s = 0.0

    def observe(self, value_s: float) -> None:
        """One more observation."""
        self._counts[bisect_left(self._bounds_s, value_s)] += 1
        self._sum_s += value_s

    def buckets(self) -> list[tuple[str, float]]:
        """Prometheus' cumulative form: (upper bound, observations not above it)."""
        total = 0
        buckets = []
        for bound, count in zip((*self._bounds_s, float("inf")), self._counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
        return buckets

    @property
    def sum_s(self) -> float:
        """The sum of all observations."""
        return self._sum_s


class Metrics:
    """All that one replica has seen since it started."""

    def __init__(self, model: str) -> None:
        self.ttft_s = Histogram(_TTFT_S)
        self.inter_token_s = Histogram(_TOKEN_S)
        self.time_per_output_token_s = Histogram(_TOKEN_S)
        self.e2e_s = Histogram(_REQUEST_S)
        self.finished: Counter[str] = Counter(dict.fromkeys(_FINISHES, 0))
        self._model = model

    def text(
        self,
        stats: Stats,
        started: Started | None,
        *,
        prefix_caching: bool,
        usage_log_failures: int | None = None,
    ) -> bytes:
        """The scrape, in Prometheus' text format; without a usage log, nothing about one."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Scrape(self, self._model, stats, started, prefix_caching))
        if usage_log_failures is not None:
            registry.register(_UsageLog(self._model, usage_log_failures))
        return generate_latest(registry)


class Watch:
    """The times of one HTTP request, from its arrival (`began_s`, monotonic) to its last token."""

    def __init__(self, metrics: Metrics, choices: int, began_s: float) -> None:
        self._metrics = metrics
        self._began_s = began_s
        self._first_s: list[float | None] = [None] * choices
        self._last_s = [0.0] * choices
        self._tokens = [0] * choices
        self._waiting = True

    def arrived(self, arrived: Sequence[tuple[int, Output]]) -> None:
        """Outputs have come, by choice."""
        now_s = time.monotonic()
        for choice, output in arrived:
            if not output.tokens:
                continue
            self._tokens[choice] += len(output.tokens)
            if self._first_s[choice] is None:
                self._first_s[choice] = now_s
            else:
                self._metrics.inter_token_s.observe(now_s - self._last_s[choice])
            self._last_s[choice] = now_s
        if self._waiting and any(output.tokens for _, output in arrived):
            self._waiting = False
            self._metrics.ttft_s.observe(now_s - self._began_s)

    def finished(self, choice: int, reason: str) -> None:
        """One choice is complete."""
        self._metrics.finished[reason] += 1
        first_s, gaps = self._first_s[choice], self._tokens[choice] - 1
        if first_s is not None and gaps > 0:
            mean_s = (self._last_s[choice] - first_s) / gaps
            self._metrics.time_per_output_token_s.observe(mean_s)

    def ended(self) -> None:
        """The whole request was answered."""
        self._metrics.e2e_s.observe(time.monotonic() - self._began_s)


class _UsageLog:
    """What a replica says of its usage log, as prometheus_client's collector interface wants it."""

    def __init__(self, model: str, failures: int) -> None:
        self._model = model
        self._failures = failures

    def collect(self) -> Iterator[Metric]:
        """The one counter."""
        about = "Writes of the usage log that failed; its counts are too low since the first."
        counter = CounterMetricFamily("ridgeline:usage_log_failures", about, labels=["model_name"])
        counter.add_metric([self._model], self._failures)
        yield counter


class _Scrape:
    """One scrape as prometheus_client's collector interface wants it."""

    def __init__(
        self,
        metrics: Metrics,
        model: str,
        stats: Stats,
        started: Started | None,
        prefix_caching: bool,
    ) -> None:
        self._metrics = metrics
        self._model = model
        self._stats = stats
        self._started = started
        self._prefix_caching = prefix_caching

    def collect(self) -> Iterator[Metric]:
        """Every metric of the replica."""
        yield from self._gauges()
        yield from self._counters()
        yield from self._histograms()

    def _gauges(self) -> Iterator[Metric]:
        stats = self._stats
        for name, about, value in (
            ("num_requests_running", "Requests in the engine's batch.", stats.running),
            ("num_requests_waiting", "Requests waiting for their turn.", stats.waiting),
            ("kv_cache_usage_perc", "Used share of the KV cache, 0 to 1.", stats.kv_usage),
        ):
            family = GaugeMetricFamily(f"vllm:{name}", about, labels=["model_name"])
            family.add_metric([self._model], value)
            yield family
        if self._started is not None:
            yield self._cache_config(self._started)

    def _cache_config(self, started: Started) -> Metric:
        labels = {
            "model_name": self._model,
            "block_size": str(started.block_size),
            "num_gpu_blocks": str(started.blocks),
            "enable_prefix_caching": str(self._prefix_caching),
            "cache_dtype": started.dtype,
        }
        about = "How the KV cache is set up; num_gpu_blocks counts blocks, wherever they are."
        family = GaugeMetricFamily("vllm:cache_config_info", about, labels=list(labels))
        family.add_metric(list(labels.values()), 1)
        return family

    def _counters(self) -> Iterator[Metric]:
        stats = self._stats
        for name, about, value in (
            ("prompt_tokens", "Prompt tokens computed.", stats.prompt_tokens),
            ("generation_tokens", "Tokens generated.", stats.generation_tokens),
            ("num_preemptions", "Requests put back to make room.", stats.preemptions),
            ("prefix_cache_queries", "Prompt tokens looked up.", stats.prefix_queries),
            ("prefix_cache_hits", "Prompt tokens found in the cache.", stats.prefix_hits),
            ("spec_decode_num_drafts", "Rows of guesses that were run.", stats.drafts),
            ("spec_decode_num_draft_tokens", "Tokens guessed in them.", stats.draft_tokens),
            ("spec_decode_num_accepted_tokens", "Guesses that held.", stats.accepted_tokens),
        ):
            counter = CounterMetricFamily(f"vllm:{name}", about, labels=["model_name"])
            counter.add_metric([self._model], value)
            yield counter
        labels = ["model_name", "finished_reason"]
        finished = CounterMetricFamily("vllm:request_success", "Answers that ended.", labels=labels)
        for reason, count in self._metrics.finished.items():
            finished.add_metric([self._model, reason], count)
        yield finished

    def _histograms(self) -> Iterator[Metric]:
        seen = self._metrics
        for name, about, histogram in (
            ("time_to_first_token", "Arrival to first token.", seen.ttft_s),
            ("inter_token_latency", "Between outputs of one answer.", seen.inter_token_s),
            ("time_per_output_token", "The same, under its older name.", seen.inter_token_s),
            (
                "request_time_per_output_token",
                "An answer's mean after its first token.",
                seen.time_per_output_token_s,
            ),
            ("e2e_request_latency", "Arrival to last token.", seen.e2e_s),
        ):
            family = HistogramMetricFamily(f"vllm:{name}_seconds", about, labels=["model_name"])
            family.add_metric([self._model], histogram.buckets(), histogram.sum_s)
            yield family
