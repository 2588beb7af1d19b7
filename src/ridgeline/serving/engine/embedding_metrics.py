"""An embedding replica's metrics, with vLLM's names where vLLM has one."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_REQUEST_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class EmbeddingMetrics:
    """All that one replica has seen since it started.

    `running` and `waiting` are asked at each scrape for how many texts are being computed, and
    how many wait.
    """

    def __init__(self, model: str, running: Callable[[], int], waiting: Callable[[], int]) -> None:
        self._registry = registry = CollectorRegistry(auto_describe=False)
        by_model = ("model_name",)
        for name, about, count in (
            ("vllm:num_requests_running", "Texts being computed.", running),
            ("vllm:num_requests_waiting", "Texts waiting for their turn.", waiting),
        ):
            gauge = Gauge(name, about, by_model, registry=registry)
            gauge.labels(model).set_function(count)
        tokens = Counter("vllm:prompt_tokens", "Tokens computed.", by_model, registry=registry)
        self._tokens = tokens.labels(model)
        e2e_s = Histogram(
            "vllm:e2e_request_latency_seconds",
            "Asked to computed.",
            by_model,
            buckets=_REQUEST_S,
            registry=registry,
        )
        self._e2e_s = e2e_s.labels(model)
        finished = Counter(
            "vllm:request_success",
            "Answers that ended.",
            labelnames=("model_name", "finished_reason"),
            registry=registry,
        )
        self._finished = {
            reason: finished.labels(model, reason) for reason in ("stop", "abort", "error")
        }

    @contextmanager
    def request(self) -> Iterator[None]:
        """Around one request that could be understood: how long it took, and how it ended."""
        began_s = time.monotonic()
        reason = "error"
        try:
            yield
            reason = "stop"
            self._e2e_s.observe(time.monotonic() - began_s)
        except asyncio.CancelledError:
            reason = "abort"
            raise
        finally:
            self._finished[reason].inc()

    def computed(self, tokens: int) -> None:
        """A request's tokens were computed."""
        self._tokens.inc(tokens)

    def text(self) -> bytes:
        """The scrape, in Prometheus' text format."""
        return generate_latest(self._registry)
