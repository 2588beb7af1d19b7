"""Who leaves a full store."""

from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.models.eviction import Kept, evict

BLOBS = st.dictionaries(st.sampled_from("abcdef"), st.just(10), max_size=4)
KEPT = st.lists(
    st.builds(Kept, st.text("0123456789", min_size=3), BLOBS, st.integers(0, 99),
              st.sampled_from(["", "", "pinned", "in use"])),
    unique_by=lambda one: one.digest, max_size=6,
)  # fmt: skip


def version(digest, used_ns, *, stays="", **blobs):
    return Kept(digest, blobs, used_ns, stays)


def test_who_was_used_longest_ago_leaves_first_and_no_more_than_needed():
    kept = [version("a", 3, a=10), version("b", 1, b=10), version("c", 2, c=10)]
    assert evict(kept, {"d": 10}, 30).leave == ("b",)
    assert evict(kept, {"d": 10}, 20).leave == ("b", "c")
    assert evict(kept, {}, 30).leave == ()


def test_who_would_free_nothing_stays():
    kept = [version("a", 1, x=10), version("b", 2, y=5), version("c", 3, x=10, stays="pinned")]
    assert evict(kept, {"d": 5}, 15).leave == ("b",)


def test_what_comes_is_not_counted_twice():
    assert evict([version("a", 1, x=10)], {"x": 10}, 10).leave == ()


def test_where_nothing_helps_nobody_leaves_and_it_is_said_why():
    kept = [version("a", 1, a=10), version("b", 2, b=10, stays="in use")]
    answer = evict(kept, {"c": 10}, 15)
    assert (answer.leave, answer.fits) == ((), False)
    assert answer.reason == "20 bytes are needed of 15; b is in use"
    assert "more than the whole store" in evict([], {"c": 10}, 5).reason


@given(KEPT, BLOBS, st.integers(0, 80))
def test_it_fits_afterwards_and_nobody_leaves_who_must_stay(kept, coming, limit_bytes):
    answer = evict(kept, coming, limit_bytes)
    stays = [one for one in kept if one.digest not in answer.leave]
    assert all(one.stays == "" for one in kept if one.digest in answer.leave)
    blobs = dict(coming)
    for one in stays if answer.fits else [one for one in kept if one.stays]:
        blobs.update(one.blobs)
    assert answer.fits == (sum(blobs.values()) <= limit_bytes)
