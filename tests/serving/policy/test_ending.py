"""What becomes of a reservation depends on how far its request came, and on nothing before that."""

from decimal import Decimal

import pytest

from ridgeline.serving.policy.ending import Ended, Then, close, must_be_read
from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.policy.price import Price


@pytest.mark.parametrize(
    ("reached", "complete", "refused", "then"),
    [
        (False, False, False, Then.RELEASE),
        (True, False, False, Then.LOOK_UP),
        (True, False, True, Then.LOOK_UP),
        (True, True, True, Then.RELEASE),
        (True, True, False, Then.SETTLE),
    ],
)
def test_what_is_done_with_a_reservation(reached, complete, refused, then) -> None:
    closing = close(Ended(reached, complete, refused))
    assert closing.then is then
    assert closing.reason


FREE, PAID = (Price(Decimal(0), Decimal(0), Decimal(usd)) for usd in (0, 1))


@pytest.mark.parametrize(
    ("stream", "keeps_log", "limits", "price", "read"),
    [
        (False, False, Limits(), PAID, True),
        (False, False, Limits(input_tokens_per_minute=9), FREE, True),
        (False, False, Limits(requests_per_minute=9), FREE, False),  # nobody asks how long it was
        (False, True, Limits(), PAID, False),  # the replica's log tells
        (True, False, Limits(), PAID, False),  # what was streamed has been seen
    ],
)
def test_an_answer_is_read_to_its_end_where_only_that_tells_its_price(
    stream, keeps_log, limits, price, read
) -> None:
    limits = [limits, Limits()]
    assert must_be_read(stream=stream, keeps_log=keeps_log, limits=limits, price=price) is read
