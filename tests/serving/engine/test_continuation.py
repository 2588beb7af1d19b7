"""Tokens to deltas: text that is final, log-probabilities beside their text."""

from hypothesis import given
from hypothesis import strategies as st
from tests.serving.engine.byte_model import EOS, byte_tokenizer

from ridgeline.serving.engine.continuation import Continuation, Delta
from ridgeline.serving.engine.messages import Logprob, Output
from ridgeline.serving.engine.stops import StopStrings
from ridgeline.serving.engine.tokenizer import Tokenizer

TOKENIZER = Tokenizer(byte_tokenizer(), bos_id=None, adds_bos=False)


def continuation(
    *stops: str, logprobs: bool = False, min_tokens: int = 0, ending: int = EOS
) -> Continuation:
    return Continuation(
        0,
        TOKENIZER,
        StopStrings(stops),
        ending=frozenset([ending]),
        min_tokens=min_tokens,
        logprobs=logprobs,
    )


def outputs(text: bytes, finish: str | None = "length") -> list[Output]:
    """One token a step; the last one finishes. The n-th log-probability is -n."""
    return [
        Output(
            "r",
            0,
            [byte],
            logprobs=[Logprob(-float(place), [])],
            finish=finish if place == len(text) - 1 else None,
        )
        for place, byte in enumerate(text)
    ]


def fed(one: Continuation, steps: list[Output]) -> list[Delta]:
    deltas: list[Delta] = []
    for step in steps:
        deltas.append(one.feed(step))
        if deltas[-1].finish:
            break
    return deltas


def text(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def test_a_character_of_several_tokens_comes_whole() -> None:
    deltas = fed(continuation(), outputs("aé🙂".encode()))
    assert [delta.text for delta in deltas] == ["a", "", "é", "", "", "", "🙂"]


def test_half_a_character_at_the_end_becomes_a_replacement_character() -> None:
    assert text(fed(continuation(), outputs("aé".encode()[:2]))) == "a\ufffd"


def test_the_token_that_ends_an_answer_is_not_text_but_counts() -> None:
    one = continuation(ending=ord("!"))
    deltas = fed(one, outputs(b"hi!", finish="stop"))
    assert (text(deltas), deltas[-1].finish, one.tokens) == ("hi", "stop", 3)


def test_a_last_token_that_only_completes_a_grammar_is_text() -> None:
    assert text(fed(continuation(), outputs(b'{"a":1}', finish="stop"))) == '{"a":1}'


def test_a_stop_string_ends_the_choice_and_says_the_engine_has_to_be_told() -> None:
    deltas = fed(continuation("END"), outputs(b"the ENx then END of it"))
    assert text(deltas) == "the ENx then "
    assert (deltas[-1].finish, deltas[-1].stopped) == ("stop", True)


def test_a_stop_string_in_the_engines_last_output_needs_no_telling() -> None:
    deltas = fed(continuation("c"), outputs(b"abc"))
    assert (text(deltas), deltas[-1].finish, deltas[-1].stopped) == ("ab", "stop", False)


def test_text_held_for_a_stop_string_is_sent_when_the_answer_ends() -> None:
    assert text(fed(continuation("END"), outputs(b"the EN"))) == "the EN"


def test_stop_strings_are_not_looked_for_before_min_tokens() -> None:
    deltas = fed(continuation("a", min_tokens=3), outputs(b"aaabca", finish="length"))
    assert (text(deltas), deltas[-1].finish) == ("aaabc", "stop")


def test_log_probabilities_of_a_stop_string_are_not_sent() -> None:
    deltas = fed(continuation("END", logprobs=True), outputs(b"aEND"))
    assert [one.token for delta in deltas for one in delta.logprobs] == [ord("a")]


@given(st.text(max_size=12), st.lists(st.text("ab", min_size=1, max_size=3), max_size=2))
def test_each_log_probability_starts_where_its_text_does(said: str, stops: list[str]) -> None:
    data = said.encode()
    deltas = fed(continuation(*stops, logprobs=True), outputs(data))
    sent = text(deltas)
    entries = [one for delta in deltas for one in delta.logprobs]
    assert [one.logprob.logprob for one in entries] == [-float(at) for at in range(len(entries))]
    assert all(one.start <= len(sent) for one in entries)
    if not deltas or not deltas[-1].stopped:
        assert len(entries) in (len(data), len(sent.encode()))
    else:
        assert len(entries) == len(sent.encode())
    assert [one.start for one in entries] == sorted(one.start for one in entries)


def in_steps(steps: list[Output], sizes: list[int]) -> list[Output]:
    """The same tokens, several in an output."""
    joined, at = [], 0
    while at < len(steps):
        size = sizes[len(joined) % len(sizes)]
        group = steps[at : at + size]
        joined.append(
            Output(
                "r",
                0,
                [token for each in group for token in each.tokens],
                logprobs=[logprob for each in group for logprob in each.logprobs],
                finish=group[-1].finish,
            )
        )
        at += size
    return joined


@given(
    st.text(alphabet="abé", min_size=1, max_size=20),
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.integers(0, 6),
    st.sampled_from(["", "ab", "bé"]),
)
def test_how_tokens_came_in_steps_does_not_show(
    said: str, sizes: list[int], min_tokens: int, stop: str
) -> None:
    """Neither in text, log-probabilities, the end, nor in the number of tokens that count."""
    steps = outputs(said.encode())
    seen = []
    for each in (steps, in_steps(steps, sizes)):
        one = continuation(*[stop][: len(stop)], logprobs=True, min_tokens=min_tokens)
        deltas = fed(one, each)
        told = [(p.token, p.start, p.logprob) for delta in deltas for p in delta.logprobs]
        seen.append((text(deltas), told, deltas[-1].finish, one.tokens))
    assert seen[0] == seen[1]


def test_a_stop_string_within_the_engines_last_step_needs_no_telling() -> None:
    [whole] = in_steps(outputs(b"an END of it"), [99])
    delta = continuation("END").feed(whole)
    assert (delta.text, delta.finish, delta.stopped) == ("an ", "stop", False)
    [part] = in_steps(outputs(b"an END of it", finish=None), [99])
    assert continuation("END").feed(part).stopped
