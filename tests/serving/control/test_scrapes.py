"""Whatever dies, hangs or comes back, no counter of all workers together ever falls."""

from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.control.scrapes import Scrapes
from ridgeline.serving.gateway.metrics_merge import merge

ANSWER = st.sampled_from(["answers", "hangs", "dies"])


def text(requests: int, running: int) -> bytes:
    return (
        f"# HELP r_total Requests\n# TYPE r_total counter\nr_total {requests}\n"
        f"# HELP g Running\n# TYPE g gauge\ng {running}\n"
        f'# HELP h Waits\n# TYPE h histogram\nh_bucket{{le="+Inf"}} {requests}\nh_sum {requests}\n'
    ).encode()


def shown(scrapes: Scrapes) -> dict[str, float]:
    lines = merge(scrapes.texts()).decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), ANSWER, st.integers(0, 5)), max_size=30))
def test_no_counter_ever_falls(steps) -> None:
    scrapes, pids, counts = Scrapes(), {"a": 1, "b": 1}, {"a": 0, "b": 0}
    seen = {"r_total": 0.0, "h_sum": 0.0}
    for worker, does, more in steps:
        if does == "dies":
            pids[worker], counts[worker] = pids[worker] + 1, 0
        counts[worker] += more
        said = text(counts[worker], 1) if does == "answers" else None
        scrapes.heard(worker, pids[worker], said)
        now = shown(scrapes)
        assert all(now.get(name, 0.0) >= value for name, value in seen.items())
        seen |= {name: now[name] for name in seen if name in now}


def test_what_a_dead_worker_had_counted_stays_and_what_ran_there_does_not() -> None:
    scrapes = Scrapes()
    scrapes.heard("a", 1, text(5, 3))
    scrapes.heard("b", 2, text(7, 1))
    scrapes.heard("a", 3, None)
    assert shown(scrapes) == {"r_total": 12, "g": 1, 'h_bucket{le="+Inf"}': 12, "h_sum": 12}
    scrapes.heard("a", 3, text(1, 1))
    assert shown(scrapes) == {"r_total": 13, "g": 2, 'h_bucket{le="+Inf"}': 13, "h_sum": 13}
    scrapes.heard("a", 4, None)
    assert shown(scrapes)["r_total"] == 13
