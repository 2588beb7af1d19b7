"""The texts of several workers as one."""

from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.gateway.config import GatewayConfig, ReplicaAddress
from ridgeline.serving.gateway.fleet import Fleet
from ridgeline.serving.gateway.metric_families import PREFIX
from ridgeline.serving.gateway.metrics import Metrics
from ridgeline.serving.gateway.metrics_merge import merge
from ridgeline.serving.gateway.record import Record

NAMES = st.sampled_from(["a", 'b"quoted', "c d", "e\\f", "g\nh", "{i}"])


def worker(done: list[tuple[str, float]], open_reservations: int) -> bytes:
    fleet = Fleet(GatewayConfig())
    fleet.add(ReplicaAddress("chat-0", "http://127.0.0.1:1"))
    metrics = Metrics(fleet, Record(0))
    for name, wait_s in done:
        metrics.rejected(name, "budget", "later")
        metrics.queued(name, wait_s)
    metrics.reads(
        queue_length=lambda: {"bulk": len(done)}, reservations_open=lambda: open_reservations
    )
    return metrics.text()


def without_memory(text: bytes) -> set[str]:
    return {line for line in text.decode().splitlines() if "resident" not in line}


DONE = st.lists(st.tuples(NAMES, st.sampled_from([0.0, 0.25, 0.5, 64.0])), max_size=8)


@given(st.lists(DONE, min_size=1, max_size=4))
def test_workers_together_say_what_one_worker_would_have_said(
    parts: list[list[tuple[str, float]]],
) -> None:
    texts = {str(at): worker(done, 7) for at, done in enumerate(parts)}
    one = worker([each for done in parts for each in done], 7 * len(parts))
    assert without_memory(merge(texts)) == without_memory(one)


def test_gauges_are_added_or_the_most_by_their_own_rule() -> None:
    text = merge({"0": worker([("a", 0.1)], 3), "1": worker([("b", 0.1), ("a", 0.1)], 5)}).decode()
    assert f'{PREFIX}queue_length{{class="bulk"}} 3.0\n' in text
    assert f"{PREFIX}reservations_open 8.0\n" in text
    assert f'{PREFIX}replica_up{{replica="chat-0"}} 0.0\n' in text  # one replica, seen by both
    assert f'{PREFIX}replica_state{{replica="chat-0",state="starting"}} 1.0\n' in text
    assert text.count(f"# TYPE {PREFIX}requests_total counter") == 1


def test_a_torn_line_is_left_out() -> None:
    assert merge({"0": b"# TYPE x counter\nx 1\nx{a="}) == b"# TYPE x counter\nx 1.0\n"
    assert merge({}) == b""
    assert merge({"0": b"up +Inf\nn NaN\n"}) == b"up +Inf\nn nan\n"
