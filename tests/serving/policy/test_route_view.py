"""What is counted of a replica, alone."""

from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.route_view import Replica
from ridgeline.serving.policy.states import State


def test_prefill_and_decode_load_end_apart_and_each_once() -> None:
    one = Replica("r0", State.READY)
    first, second = one.dispatched(300), one.dispatched(50)
    assert (one.running, one.uncached_tokens, one.decoding) == (2, 350, 0)
    first.prefilled()
    first.prefilled()
    assert (one.running, one.uncached_tokens, one.decoding) == (2, 50, 1)
    second.finished()  # its client left before the first token
    second.prefilled()
    second.finished()
    assert (one.running, one.uncached_tokens, one.decoding) == (1, 0, 1)
    first.finished()
    assert (one.running, one.uncached_tokens, one.decoding) == (0, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("dpf")), max_size=60))
def test_whatever_happens_counters_end_at_zero_and_are_never_negative(events) -> None:
    one, sent = Replica("r0"), {}
    for slot, what in events:
        if what == "d" and slot not in sent:
            sent[slot] = one.dispatched(slot * 10, slot * 15)
        elif slot in sent:
            sent[slot].prefilled() if what == "p" else sent[slot].finished()
        assert min(one.running, one.uncached_tokens, one.decoding, one.prompt_tokens) >= 0
        assert one.decoding <= one.running
    for each in sent.values():
        each.finished()
    assert (one.running, one.uncached_tokens, one.decoding) == (0, 0, 0)
    assert one.prompt_tokens == 0


def test_a_prompt_counts_from_its_dispatch_to_its_end() -> None:
    one = Replica("r0", State.READY)
    sent = one.dispatched(100, 400)
    sent.prefilled()
    assert (one.uncached_tokens, one.prompt_tokens) == (0, 400)
    sent.finished()
    sent.finished()
    assert one.prompt_tokens == 0
