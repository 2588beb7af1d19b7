"""The language of workings: what it can say, and that it refuses all else at once."""

import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.catalog.accelerators import accelerator
from ridgeline.catalog.models import model
from ridgeline.errors import RidgelineError, SpecError
from ridgeline.physics.law import LAWS
from ridgeline.platform.expressions import MOST_CHARACTERS, evaluate
from ridgeline.platform.plan import topics
from ridgeline.platform.vocabulary import FUNCTIONS, laws
from ridgeline.quantity import Quantity
from ridgeline.topics import ask

topics()


def value(text: str) -> object:
    found = evaluate(text).value
    return found.value if isinstance(found, Quantity) else found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1 + 2 * 3 - 4 / 8", 6.5),
        ("2 ** 10", 1024),
        ("-(3 - 5)", 2),
        ("7 // 2", 3),
        ("sum(turn for turn in range(1, 11)) / 10", 5.5),
        ("sum(a * b for a in range(3) for b in range(3) if a < b)", 2),
        ("sum([1, 2, 3])", 6),
        ("(10, 20)[1]", 20),
        ("1 if 2 < 3 else 5", 1),
        ("1 < 2 < 3 and not 3 < 2", True),
        ("300 * 4 == 1200", True),
        ("ceil(2.1) + floor(2.9) + abs(-1) + sqrt(9) + log2(8) + exp(0) + log(1)", 13),
        ("largest(1, 5, 3) - smallest(left=1, right=5)", 4),
        ('choose(1 < 2, 10, 20, why="small")', 10),
        ('q("80 GB")', 80e9),
        ('q("400 Gb/s")', 50e9),
        ('q("8k tokens")', 8192),
        ('q("2.8T params")', 2.8e12),
        ('q("80 B")', 80),
        ('q("5 %")', 0.05),
        ('q("1e3 s")', 1000),
        ('dtype_bytes("bf16")', 2),
    ],
)
def test_it_says(text: str, wanted: object):
    assert value(text) == wanted


def test_rows_of_the_catalog_answer_by_property_and_by_method():
    h100, llama = accelerator("h100-sxm"), model("llama-3.1-70b")
    assert value('accelerator("h100-sxm").memory_bytes_per_s') == h100.memory_bytes_per_s.value
    assert value('accelerator("h100-sxm").flop_per_s("bf16")') == h100.flop_per_s("bf16").value
    assert value('model("llama-3.1-70b").layers') == llama.layers.value == 80


def test_plain_numbers_in_a_law_get_the_units_that_the_law_names():
    step = evaluate("compute_s(16e9, 4e12)").value
    assert step.to("ms") == pytest.approx(4.0)
    assert {leaf.name for leaf in step.walk() if not leaf.op} == {
        "work_flop",
        "peak_flop_per_s",
        "mfu",
    }


def test_every_law_can_be_called():
    known = laws()
    assert len(known) > 50
    assert not set(known) & set(FUNCTIONS), "a law has the name of a function"
    assert value("requests_in_flight(50, 20)") == 1000


def test_a_topic_answers_with_its_values_and_its_steps():
    here = 'topic("users-per-node", {"users": 500, "context_tokens": "4k"}, {"params": "70.6B"})'
    there = ask("users-per-node", {"users": "500", "context_tokens": "4k"}, {"params": "70.6B"})
    assert value(f'{here}["users_per_node"]') == there.answer.values["users_per_node"].value
    assert value(f'{here}["params"]') == 70.6e9
    assert value(f'{here}["ok"]') is there.answer.ok


def test_a_result_keeps_its_derivation_and_what_was_compared():
    worked = evaluate('(q("5 us", "launch") * 352 > q("4.8 ms"), 352)')
    assert worked.parts == (False, 352)
    names = {step.name for root in worked.roots for step in root.walk()}
    assert "launch" in names
    ((left, sign, right),) = worked.compared
    assert (left.to("ms"), sign, right.to("ms")) == (pytest.approx(1.76), ">", 4.8)


#: Each has to be refused, and at once.
HOSTILE = [
    "9 ** 9 ** 9 ** 9",
    "10 ** 10 ** 10",
    "2 ** 0.5 ** -1e308",
    'q("2 s") ** 1e300',
    "1e308 * 10",
    "range(10 ** 12)",
    "sum(1 for a in range(20000) for b in range(20000))",
    "sum(1 for a in range(300) for b in range(300) for c in range(300))",
    "[[x for x in range(20000)] for y in range(20000)]",
    '"a" * 10 ** 9',
    "(" * 900 + "1" + ")" * 900,
    "-" * 1500 + "1",
    "1" + "+1" * 900,
    "x" * (MOST_CHARACTERS + 1),
    "9" * 1900,
    'experiment("steals", depth=60)',
    'experiment("steals", depth=1e300)',
    'experiment("ring-imbalance", rings=10 ** 12)',
    'experiment("burst", step_s=0)',
    'experiment("one-pass-variance", values=10 ** 12)',
    'sum(experiment("steals", seed=s) for s in range(100))',
    'sum(topic("users-per-node")["nodes"] for s in range(100))',
    "poisson_tail(1e15, 1e15)",
    "binomial_quantile(1e300, 0.5, 0.9)",
    "__import__('os').system('true')",
    "().__class__.__bases__[0].__subclasses__()",
    '"".join',
    'model("llama-3.1-70b").data',
    'model("llama-3.1-70b").__class__',
    'model("llama-3.1-70b").params.__init__',
    'model("llama-3.1-70b").flop_per_token.__globals__',
    "accelerator.__globals__",
    "open('/etc/passwd')",
    "eval('1')",
    "getattr(1, 'real')",
    "lambda: 1",
    "(lambda x: x(x))(lambda x: x(x))",
    "(x := 1)",
    "f'{1}'",
    "{1, 2}",
    "{**{}}",
    "sum(*[1])",
    "sum(**{})",
    "await x",
    "(yield 1)",
    "1 @ 2",
    "1 << 10 ** 9",
    "~1",
    "1 is 1",
    "1 in (1, 2)",
    "1 % 2",
    "1j",
    "None",
    "b'x'",
    "...",
    "",
    "1 +",
    "import os",
    "x = 1",
    "\0",
    "1; 2",
    "1 / 0",
    "(-8) ** (1 / 3)",
    "log(-1)",
    "exp(1e9)",
    "sqrt(-1)",
    "sum(1, 2)",
    "ceil()",
    "range(1, 10, 0)",
    "range(0.5)",
    "(1, 2)[5]",
    "(1, 2)[0.5]",
    '{"a": 1}["a"]',
    'q("80")[0]',
    'q("5 foo")',
    'q("inf s")',
    "q(5)",
    "nothing",
    "ceil",
    "nothing(1)",
    'model("no-such-model").params',
    'model("llama-3.1-70b")',
    'accelerator("h100-sxm").flop_per_s("fp4")',
    'accelerator("h100-sxm").memory_bytes()',
    'topic("no-such-topic")["x"]',
    'topic("users-per-node")["no-such-value"]',
    'topic("users-per-node", {"no": 1})["nodes"]',
    'topic("users-per-node", {}, {"no_such_step": 1})["nodes"]',
    'topic("users-per-node")',
    'experiment("no-such-experiment")',
    'experiment("steals", end="middle")',
    'experiment("steals", workers=1.5)',
    'experiment("steals", workers=-1)',
    'experiment("steals", workers="8")',
    'experiment("steals", nothing=1)',
    'experiment("steals", workers=q("8 s"))',
    'q("1 GB") + 1',
    'q("1 GB") + q("1 s")',
    'q("1 GB") < 1',
    'compute_s(q("1 s"), 1)',
    'compute_s("a", 1)',
    "compute_s(1)",
    '"text"',
    "1 if 2 else 3",
    "1 and 2",
    "not 1",
    "True + 1",
]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:40] for text in HOSTILE])
def test_it_refuses_at_once_and_says_where(text: str):
    start = time.process_time()
    with pytest.raises(SpecError) as caught:
        evaluate(text, where="mine.csv, line 3")
    assert time.process_time() - start < 2.0
    assert caught.value.where.startswith("mine.csv, line 3")
    assert caught.value.problem
    assert caught.value.remedy


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="q12()[]+-*/.,<>=\"' abcefilmnorsux_:{}%", max_size=60))
def test_no_text_gives_anything_but_numbers_or_an_error_of_ours(text: str):
    try:
        worked = evaluate(text)
    except RidgelineError:
        return
    for part in worked.parts:
        assert isinstance(part, bool | float | Quantity)
        assert np.isfinite(float(part.value if isinstance(part, Quantity) else part))


def test_the_nearest_names_are_the_remedy():
    with pytest.raises(SpecError) as caught:
        evaluate("comput_s(1, 2)")
    assert "compute_s" in caught.value.remedy
    with pytest.raises(SpecError) as caught:
        evaluate('accelerator("h100-sxm").memory')
    assert "memory_bytes" in caught.value.remedy


class TooSlowError(Exception):
    """What the alarm raises."""


@pytest.fixture
def two_seconds() -> Iterator[None]:
    """Whatever takes longer is stopped."""

    def ring(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("two_seconds")
@pytest.mark.parametrize("name", laws())
def test_no_law_hangs_or_fails_strangely_on_any_number(name: str):
    parameters = LAWS[name].parameters
    for extreme in ("1e15", "1e300", "1e-300", "0", "-1"):
        for changed in (None, *range(len(parameters))):
            numbers = [extreme if changed in (None, i) else "1" for i in range(len(parameters))]
            try:
                found = evaluate(f"{name}({', '.join(numbers)})").value
            except SpecError:
                continue
            assert np.isfinite(found.value)


@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        ("read_s(1e9)", "read_s: missing a required argument: 'bytes_per_s'", "read_bytes, bytes"),
        ("read_s(1e9, 1, 2)", "read_s: too many positional arguments", "read_s(read_bytes"),
        ('model("llama-3.1-8b").weights_bytes()', "'dtype'", ".weights_bytes(dtype)"),
        ("choose(1 < 2, 1, 2)", "choose: missing a required argument: 'why'", "choose(condition"),
    ],
)
def test_an_argument_that_is_missing_or_too_much_is_named(text: str, problem: str, remedy: str):
    with pytest.raises(SpecError) as caught:
        evaluate(text)
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy
