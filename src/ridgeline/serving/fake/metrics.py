"""What a fake replica tells of itself, with vLLM's names, those it had before, or none.

Routers and dashboards that know one set of names break when it changes: here both can be had.
"""

from bisect import bisect_left
from collections import Counter

from ridgeline.serving.fake.engine import FakeEngine
from ridgeline.serving.fake.setup import MetricNames

_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
           10.0, 20.0, 40.0, 80.0)  # fmt: skip
_TOKEN_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0)
_REQUEST_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 480.0)
_COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "num_preemptions",
    "prefix_cache_queries",
    "prefix_cache_hits",
)
_OLD = {
    "kv_cache_usage_perc": "gpu_cache_usage_perc",
    "inter_token_latency_seconds": "time_per_output_token_seconds",
    "prefix_cache_queries": "gpu_prefix_cache_queries",
    "prefix_cache_hits": "gpu_prefix_cache_hits",
}


class Histogram:
    """Counts of observations by upper bound, and their sum."""

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def observe(self, value_s: float) -> None:
        """One more observation."""
        self._counts[bisect_left(self._bounds_s, value_s)] += 1
        self._sum_s += value_s

    def lines(self, name: str, label: str) -> list[str]:
        """Prometheus' lines: cumulative buckets, count and sum."""
        told, total = [], 0
        for bound, count in zip((*map(str, self._bounds_s), "+Inf"), self._counts, strict=True):
            total += count
            told.append(f'{name}_bucket{{{label},le="{bound}"}} {total}')
        return [*told, f"{name}_count{{{label}}} {total}", f"{name}_sum{{{label}}} {self._sum_s}"]


class Metrics:
    """What a fake replica's requests have seen since it started."""

    def __init__(self, model: str) -> None:
        self.ttft_s = Histogram(_TTFT_S)
        self.inter_token_s = Histogram(_TOKEN_S)
        self.e2e_s = Histogram(_REQUEST_S)
        self.finished: Counter[str] = Counter({"stop": 0, "length": 0, "abort": 0, "error": 0})
        self._label = 'model_name="' + model.replace("\\", r"\\").replace('"', r"\"") + '"'

    def text(self, engine: FakeEngine, names: MetricNames, usage_log_failures: int) -> str:
        """The scrape, in Prometheus' text format."""
        label, told = self._label, []

        def named(name: str) -> str:
            return "vllm:" + (_OLD.get(name, name) if names == "old" else name)

        for name, value in (
            ("num_requests_running", engine.running),
            ("num_requests_waiting", engine.waiting),
            ("kv_cache_usage_perc", engine.book.usage),
        ):
            told += [f"# TYPE {named(name)} gauge", f"{named(name)}{{{label}}} {value}"]
        info = f'block_size="{engine.book.block_size}",num_gpu_blocks="{engine.book.blocks}"'
        told.append(f"vllm:cache_config_info{{{label},{info}}} 1")
        for name in _COUNTERS:
            told.append(f"# TYPE {named(name)} counter")
            told.append(f"{named(name)}_total{{{label}}} {engine.counts[name]}")
        told.append("# TYPE vllm:request_success counter")
        for reason, count in self.finished.items():
            sample = f'vllm:request_success_total{{{label},finished_reason="{reason}"}}'
            told.append(f"{sample} {count}")
        told.append("# TYPE ridgeline:usage_log_failures counter")
        told.append(f"ridgeline:usage_log_failures_total{{{label}}} {usage_log_failures}")
        for name, histogram in (
            ("time_to_first_token_seconds", self.ttft_s),
            ("inter_token_latency_seconds", self.inter_token_s),
            ("e2e_request_latency_seconds", self.e2e_s),
        ):
            told.append(f"# TYPE {named(name)} histogram")
            told += histogram.lines(named(name), label)
        return "\n".join(told) + "\n"
