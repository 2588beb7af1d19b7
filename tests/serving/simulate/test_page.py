"""The page of a simulation: it stands alone, and no name breaks out of it."""

import re
from html.parser import HTMLParser

import pytest
from worlds import model

from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.page import page
from ridgeline.serving.simulate.report import Slo, by, report
from ridgeline.serving.simulate.series import Series
from ridgeline.serving.simulate.setup import Fault, Serving, Trouble
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

HOSTILE = "</title><script>alert(1)</script>'\"&"


class Tags(HTMLParser):
    """Counts what a browser would see."""

    def __init__(self, text):
        super().__init__()
        self.found, self.attributes, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        self.attributes += attrs


def drawn(name="chat", requests=None, **changes):
    """A page of one run."""
    requests = requests or [Request(number * 0.05, 100, 20, tenant=name) for number in range(200)]
    fault = Fault(1.0, Trouble.DIES, name, 0)
    serving = Serving((model(name, **changes),), faults=(fault,))
    outcome = simulate(serving, OpenLoop(requests, name), series=Series())
    told = report(outcome, Slo(0.5, 0.05))
    told |= {"platform": name, "model": name, "traffic": name, "oracle": None}
    told["tenants"] = by(outcome, "tenant", lambda _: None)
    return page(told, {"": outcome}, [f"{name}: as a terminal has it"])


def test_it_has_all_pictures():
    text = drawn()
    for title in (
        "Time to the first token", "Time per token", "Whole answer", "Replicas", "Requests",
        "KV cache in use", "What bound the engines", "Requests, one by one", "By tenant",
    ):  # fmt: skip
        assert f"<h2>{title}</h2>" in text, title
    assert "SLO 500 ms" in text


def test_it_stands_alone():
    text = drawn()
    tags = Tags(text)
    assert tags.found.count("script") == 1
    assert not {"link", "img", "iframe", "object", "embed", "use", "image"} & set(tags.found)
    assert not [name for name, _ in tags.attributes if name in ("src", "href", "xlink:href")]
    assert not re.search(r"https?://|@import|url\(", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize("name", [HOSTILE, "a" * 500, "\u202edrow", "\n\n"])
def test_hostile_names_stay_words(name):
    text, plain = drawn(name), drawn()
    assert "<script>alert" not in text
    assert sorted(set(Tags(text).found)) == sorted(set(Tags(plain).found))
    assert Tags(text).found.count("script") == 1
    assert not [name for name, _ in Tags(text).attributes if name.startswith("on")]


def test_a_run_out_of_balance_shows_no_latencies_and_says_why():
    requests = [Request(number * 0.002, 100, 100) for number in range(1000)]
    outcome = simulate(Serving((model(slots=10**6),)), OpenLoop(requests, "chat"), series=Series())
    told = report(outcome) | {"platform": "p", "model": "chat", "traffic": "t"}
    text = page(told, {"": outcome}, ["UNSTABLE: it grows"])
    assert "UNSTABLE: it grows" in text
    assert "<h2>Time to the first token</h2>" not in text
    assert "not told" in text


def test_a_run_of_nothing_has_a_page():
    outcome = simulate(Serving((model(),)), OpenLoop([], "chat"), series=Series())
    told = report(outcome) | {"platform": "p", "model": "chat", "traffic": "t"}
    assert page(told, {"": outcome}, []).endswith("</html>\n")


def test_runs_that_are_compared_have_their_curves_in_one_picture():
    requests = [Request(number * 0.05, 100, 20) for number in range(200)]
    some = {
        name: simulate(Serving((one,)), OpenLoop(requests, "chat"), series=Series())
        for name, one in (("a", model()), ("b", model(replicas=2)))
    }
    value = {"mean": 1.0, "half": 0.1}
    told = {
        "platform": "p", "model": "chat", "traffic": "t", "names": ["a", "b"], "seeds": [0],
        "stable": [1, 0], "verdicts": ["b is better"],
        "bound": {name: report(one)["bound"]["all"] for name, one in some.items()},
        "compared": [
            {"name": name, "values": [value, value], "differences": [value], "apart": [True]}
            for name in ("TTFT p50 (s)", "cost ($)")
        ],
    }  # fmt: skip
    text = page(told, some, [])
    assert "<p>b is better.</p>" in text
    assert "<td>unstable</td>" in text, "b did not keep up"
    assert text.count("<h3>") == 2
    told["stable"] = [1, 1]
    assert "<td>unstable</td>" not in page(told, some, [])
