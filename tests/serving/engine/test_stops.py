"""Stop strings against the plainest reading of them: character by character."""

from hypothesis import example, given
from hypothesis import strategies as st

from ridgeline.serving.engine.stops import StopSearch, StopStrings

PIECES = st.lists(st.text("abc", max_size=4), max_size=12)
STOPS = st.lists(st.text("abc", min_size=1, max_size=4), max_size=4)


def plain(text: str, stops: list[str]) -> tuple[str, bool]:
    """Read one character at a time; where a stop string is complete, the longest one counts."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))], True
    return text, False


@given(PIECES, STOPS)
@example(["a", "b", "c"], ["bc"])
@example(["abcb"], ["bcb", "cb"])
def test_the_cut_does_not_depend_on_the_pieces(pieces: list[str], stops: list[str]) -> None:
    search = StopSearch(StopStrings(stops))
    sent = ""
    for piece in pieces:
        sent += search.feed(piece)
        if search.found:
            break
    sent += search.flush()
    assert (sent, search.found) == plain("".join(pieces), stops)


@given(PIECES, STOPS, st.text("abc", max_size=4))
def test_nothing_sent_is_ever_taken_back(pieces: list[str], stops: list[str], more: str) -> None:
    search = StopSearch(StopStrings(stops))
    fed = sent = ""
    for piece in pieces:
        fed += piece
        sent += search.feed(piece)
        assert plain(fed + more, stops)[0].startswith(sent)
        if search.found:
            break


@given(PIECES, STOPS)
def test_no_more_is_held_than_a_beginning(pieces: list[str], stops: list[str]) -> None:
    search = StopSearch(StopStrings(stops))
    fed = sent = 0
    for piece in pieces:
        fed += len(piece)
        sent += len(search.feed(piece))
        if search.found:
            break
        assert fed - sent <= max((len(stop) - 1 for stop in stops), default=0)
