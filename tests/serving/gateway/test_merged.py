"""What several workers show as one."""

import copy

from ridgeline.serving.gateway.merged import merged_status

ONE = {
    "version": "1",
    "uptime_s": 5.0,
    "in_flight": 2,
    "requests": 10,
    "output_tokens": 100,
    "models": [{"id": "m"}],
    "replicas": [
        {"id": "r", "in_flight": 2, "prefilling_tokens": 70, "requests": 10, "failures": 1,
         "state": "ready"}
    ],
    "queues": [
        {"model": "m", "class": "bulk", "tenant": "a", "queued": 1, "running": 2,
         "oldest_wait_s": 3.0}
    ],
    "held": {"m": 2},
    "arms": {"m": {"v1": {"requests": 3, "errors": 1, "ttft": {}, "tpot": {}}}},
    "control": {"models": []},
    "rates": {"requests_per_s": 1.5, "series": {"requests": [1, 2]}},
    "latency": {"window_s": 120},
    "samples": {"ttft": [0.1, 0.2], "tpot": [], "e2e": [1.0]},
    "recent": [{"id": "x", "at_unix_s": 10.0}],
    "errors": [],
}  # fmt: skip


def test_counts_are_added_and_the_newest_come_first() -> None:
    other = copy.deepcopy(ONE)
    other["uptime_s"], other["recent"] = 9.0, [{"id": "y", "at_unix_s": 11.0}]
    other["queues"][0]["oldest_wait_s"] = 4.0
    both = merged_status([ONE, other])
    assert (both["requests"], both["in_flight"], both["workers"]) == (20, 4, 2)
    assert both["uptime_s"] == 9.0
    assert both["held"] == {"m": 4}
    assert both["arms"]["m"]["v1"] == {"requests": 6, "errors": 2, "ttft": {}, "tpot": {}}
    assert both["control"] == {"models": []}
    assert both["replicas"] == [
        {
            "id": "r",
            "in_flight": 4,
            "prefilling_tokens": 140,
            "requests": 20,
            "failures": 2,
            "state": "ready",
        }
    ]
    assert (both["queues"][0]["queued"], both["queues"][0]["oldest_wait_s"]) == (2, 4.0)
    assert both["rates"] == {"requests_per_s": 3.0, "series": {"requests": [2, 4]}}
    assert [row["id"] for row in both["recent"]] == ["y", "x"]


def test_percentiles_are_taken_over_all_samples() -> None:
    slow = {**ONE, "samples": {"ttft": [9.0] * 98, "tpot": [], "e2e": [1.0]}}
    ttft = merged_status([ONE, slow])["latency"]["ttft"]
    assert (ttft["p50"], ttft["count"]) == (9.0, 100)


def test_one_worker_is_itself_and_none_is_nothing() -> None:
    assert merged_status([ONE])["requests"] == 10
    assert merged_status([]) == {}
