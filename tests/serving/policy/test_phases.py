"""Where a prompt is computed."""

import pytest

from ridgeline.serving.policy.phases import computed


@pytest.mark.parametrize(
    ("tokens", "least", "is_ready", "apart"),
    [(100, 0, True, True), (100, 100, True, True), (99, 100, True, False), (500, 0, False, False)],
)
def test_apart_where_it_is_worth_the_way(tokens, least, is_ready, apart):
    where = computed(tokens, least, is_ready=is_ready)
    assert where.apart is apart
    assert where.reason
