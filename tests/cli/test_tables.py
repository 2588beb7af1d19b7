"""Tables: a line for each row where it fits, and else two; never a broken word."""

from io import StringIO

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ridgeline.cli.tables import console, print_table

HEADINGS = ("name", "state", "a", "b")
ROWS = [("one", "up", "1", "2"), ("[bold]", "down", "1,000", "20")]


def printed(rows, width: int, **how) -> list[str]:
    out = StringIO()
    print_table(Console(file=out, width=width), HEADINGS, rows, **how)
    return out.getvalue().splitlines()


def test_columns_stand_below_each_other() -> None:
    assert printed(ROWS, 80, first=2, right=True) == [
        "name    state      a   b",
        "one     up         1   2",
        "[bold]  down   1,000  20",
    ]


def test_rows_that_do_not_fit_take_two_lines() -> None:
    assert printed(ROWS, 20, first=2, right=True) == [
        "name    state", "        a   b",
        "one     up", "        1   2",
        "[bold]  down", "    1,000  20",
    ]  # fmt: skip
    assert printed(ROWS, 20, first=2)[1::2] == ["    a; b", "    1; 2", "    1,000; 20"]


cells = st.text("ab ,", min_size=1, max_size=30)


@given(st.lists(st.tuples(cells, cells, cells, cells), min_size=1, max_size=4), st.integers(10, 90))
def test_no_word_is_ever_broken(rows, width: int) -> None:
    lines = printed(rows, width, first=2)
    seen = {word for line in lines for word in line.replace(";", " ").split()}
    assert {word for row in rows for cell in row for word in cell.split()} <= seen


def test_a_pipe_has_no_edge(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert console().width > 100_000
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    assert console().width == 80
