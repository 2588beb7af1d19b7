from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.window import Window, aged, counted, left_ns

NS = 1_000_000_000
uses = st.lists(
    st.tuples(st.integers(0, 200 * NS), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
)


def used(rows: list[tuple[int, int, int, int]], now_ns: int) -> Window:
    window = Window()
    for at_ns, requests, inputs, outputs in rows:
        window = counted(window, at_ns, now_ns, requests=requests, inputs=inputs, outputs=outputs)
    return window


def test_a_second_counts_until_sixty_seconds_after_its_end() -> None:
    window = used([(5 * NS + 999, 1, 10, 0)], 6 * NS)
    assert aged(window, 66 * NS - 1) == window
    assert aged(window, 66 * NS) == Window()


def test_what_was_added_and_taken_away_again_leaves_no_trace() -> None:
    before = used([(5 * NS, 1, 10, 0)], 7 * NS)
    more = counted(before, 6 * NS, 7 * NS, requests=1, inputs=3)
    assert counted(more, 6 * NS, 7 * NS, requests=-1, inputs=-3) == before


def test_what_no_longer_counts_cannot_be_changed() -> None:
    assert counted(Window(), 5 * NS, 66 * NS, inputs=7) == Window()


def test_it_says_when_so_much_has_left() -> None:
    window = used([(5 * NS, 1, 10, 0), (9 * NS, 1, 10, 0)], 10 * NS)
    assert left_ns(window, 2, 10) == 66 * NS
    assert left_ns(window, 2, 11) == 70 * NS
    assert left_ns(window, 2, 21) is None


@given(uses, st.integers(0, 300 * NS))
def test_it_never_holds_less_than_any_sixty_seconds_did_nor_more_than_sixty_one(
    rows: list[tuple[int, int, int, int]], now_ns: int
) -> None:
    past = [row for row in rows if row[0] <= now_ns]
    window = aged(used(past, now_ns), now_ns)
    last_60_s = sum(row[2] for row in past if row[0] > now_ns - 60 * NS)
    last_61_s = sum(row[2] for row in past if row[0] > now_ns - 61 * NS)
    assert last_60_s <= window.input_tokens <= last_61_s


@given(uses, st.integers(0, 300 * NS))
def test_its_sums_are_those_of_its_seconds_in_order_and_without_empty_ones(
    rows: list[tuple[int, int, int, int]], now_ns: int
) -> None:
    window = aged(used(rows, now_ns), now_ns)
    sums = tuple(sum(second[column] for second in window.seconds) for column in (1, 2, 3))
    assert sums == (window.requests, window.input_tokens, window.output_tokens)
    times = [second[0] for second in window.seconds]
    assert times == sorted(set(times))
    assert all(any(second[1:]) for second in window.seconds)
