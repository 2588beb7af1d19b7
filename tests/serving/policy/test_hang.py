"""Who hangs is ended; who shares a trouble with all others gets more time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.hang import PATIENCE_S, SHARED_PATIENCE_S, Out, hung

OUT = st.one_of(st.none(), st.floats(0, 1000))


@pytest.mark.parametrize(
    ("out_s", "ended"),
    [
        ([None], []),
        ([10.0], []),
        ([PATIENCE_S], ["0"]),
        ([None, 40.0], ["1"]),
        ([40.0, 40.0], []),
        ([None, 40.0, 40.0], ["1", "2"]),
        ([130.0, 125.0], ["0", "1"]),
        ([130.0, 20.0], ["0"]),
    ],
)
def test_table(out_s, ended):
    seen = [Out(str(number), one) for number, one in enumerate(out_s)]
    assert [one.replica for one in hung(seen)] == ended


@given(st.lists(OUT, max_size=6))
def test_nobody_is_ended_early_and_everybody_in_the_end(out_s):
    seen = [Out(str(number), one) for number, one in enumerate(out_s)]
    ended = {one.replica for one in hung(seen)}
    for one in seen:
        if one.out_s is None or one.out_s < PATIENCE_S:
            assert one.replica not in ended
        elif one.out_s >= SHARED_PATIENCE_S:
            assert one.replica in ended


def test_the_reason_says_how_long():
    (one,) = hung([Out("a", 31.4), Out("b", None)])
    assert one.reason == "it hangs: out of routing for 31 s"
