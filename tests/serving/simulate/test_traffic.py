"""Traffic: the same requests for whoever is asked."""

from collections import Counter

import pytest

from ridgeline.serving.simulate.streams import Stream
from ridgeline.serving.simulate.traffic import Loop, Seeded, Streams, Traffic
from ridgeline.workload import Request, Trace, parse_arrivals, parse_sizes

SIZES = parse_sizes("100", where="")
SEEDED = Seeded(parse_arrivals("poisson"), SIZES, SIZES, 5.0, 2_000)
RECORDED = Trace(
    "t.csv", tuple(Request(n / 2, 10, 5, model="ab"[n % 2]) for n in range(9)), 0, True
)


def requests(traffic: Traffic, seed: int = 0, faster: float = 1.0) -> list[Request]:
    return list(traffic.clients(seed, faster)._requests)


def test_tenants_are_drawn_by_their_shares_and_change_nothing_else():
    plain = requests(Traffic(SEEDED, "chat"))
    shared = requests(Traffic(SEEDED, "chat", tenants=(("a", 3.0), ("b", 1.0))))
    counts = Counter(one.tenant for one in shared)
    assert counts["a"] / 2_000 == pytest.approx(0.75, abs=0.03)
    assert counts.keys() == {"a", "b"}
    assert [one.at_s for one in plain] == [one.at_s for one in shared]
    assert shared == requests(Traffic(SEEDED, "chat", tenants=(("a", 3.0), ("b", 1.0))))


def test_who_is_asked_is_told_of_every_source():
    assert Traffic(SEEDED, "chat").models == ("chat",)
    assert Traffic(RECORDED, "chat").models == ("a", "b")
    streams = Streams("w", (Stream("x", rate_per_s=1.0), Stream("y", "code", rate_per_s=2.0),
                            Stream("z", trace=RECORDED)))  # fmt: skip
    assert Traffic(streams, "chat").models == ("chat", "code", "a", "b")
    assert Traffic(streams, "chat").rate_per_s == pytest.approx(3 + 9 / 4)
    assert Streams("w", (Stream("x", clients=1),)).rate_per_s == 0.0


def test_names_and_rates():
    assert Traffic(SEEDED, "chat").name == "5/s, Poisson, prompts 100, answers 100"
    assert Traffic(RECORDED, "chat").name == "t.csv"
    assert Traffic(RECORDED, "chat").rate_per_s == pytest.approx(9 / 4)


def test_a_trace_goes_faster_and_a_loop_has_no_times():
    assert [one.at_s for one in requests(Traffic(RECORDED, "m"), faster=2.0)][:3] == [0, 0.25, 0.5]
    assert len(requests(Traffic(RECORDED, "m", Loop(2)))) == 9


def test_what_is_drawn_from_distributions_is_drawn_anew_for_each_seed():
    def draw(seed: int) -> tuple[Request, ...]:
        return tuple(Request(float(n), seed + 1, 5) for n in range(3))

    drawn = Trace("s", draw(0), 0, timed=True, draw=draw)
    for seed in (0, 7):
        assert {one.prompt_tokens for one in requests(Traffic(drawn, "m"), seed)} == {seed + 1}
        assert {one.prompt_tokens for one in requests(Traffic(drawn, "m"), seed, 2.0)} == {seed + 1}
    assert requests(Traffic(RECORDED, "m"), 7) == list(RECORDED.requests)
