"""Answers are read the same however they are cut, and never in two ways."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.gateway.http1 import (
    MOST_HEAD_BYTES,
    AnswerReader,
    NotHttpError,
    read_head,
)

SIZED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\nhello world"
)
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"
    b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nDigest: x\r\n\r\n"
)
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"


def read(data: bytes, cuts: list[int]) -> tuple[AnswerReader, bytes]:
    reader = AnswerReader()
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return reader, b"".join(reader.feed(data[begin:end]) for begin, end in pairwise(places))


@pytest.mark.parametrize("answer", [SIZED, CHUNKED, CONTINUED + SIZED, CONTINUED + CHUNKED])
@given(cuts=st.lists(st.integers(0, 1000), max_size=12))
def test_an_answer_is_read_the_same_wherever_it_is_cut(answer: bytes, cuts: list[int]) -> None:
    reader, body = read(answer, cuts)
    assert body == b"hello world"
    assert reader.incoming is not None
    assert reader.incoming.status == 200
    assert reader.incoming.keeps
    assert reader.clean


@given(pieces=st.lists(st.binary(min_size=1, max_size=300), max_size=20), cut=st.integers(0, 9999))
def test_chunks_of_any_bytes_come_out_as_they_were(pieces: list[bytes], cut: int) -> None:
    framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    reader, body = read(head + framed + b"0\r\n\r\n", [cut])
    assert body == b"".join(pieces)
    assert reader.clean


@given(cut=st.integers(0, len(SIZED) - 1))
def test_an_answer_that_stops_early_is_not_whole(cut: int) -> None:
    reader = AnswerReader()
    reader.feed(SIZED[:cut])
    assert not reader.feed_eof()


def test_without_a_length_the_body_ends_with_the_connection() -> None:
    reader = AnswerReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\nall") == b"all"
    assert not reader.ended
    assert reader.feed_eof()
    assert reader.incoming is not None
    assert not reader.incoming.keeps


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_some_answers_have_no_body_whatever_they_say(status: bytes) -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\n")
    assert reader.clean


def test_bytes_after_the_end_are_no_ones_answer() -> None:
    reader = AnswerReader()
    assert reader.feed(SIZED + b"HTTP/1.1 200 OK") == b"hello world"
    assert reader.ended
    assert not reader.clean


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"HTTP/1.1 200 OK", True),
        (b"HTTP/1.1 200", True),  # the reason may be missing
        (b"HTTP/1.1 200 OK\r\nConnection: Close", False),
        (b"HTTP/1.0 200 OK", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive", True),
    ],
)
def test_a_connection_is_kept_where_the_answer_says_so(head: bytes, *, keeps: bool) -> None:
    assert read_head(head).keeps == keeps


def test_a_body_framed_in_two_ways_ends_the_connection() -> None:
    reader = AnswerReader()
    reader.feed(
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    assert reader.ended
    assert reader.incoming is not None
    assert not reader.incoming.keeps


@pytest.mark.parametrize(
    "bad",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 099 Low\r\n\r\n",
        b"HTTP/1.1 2000 High\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nName : space\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\nX-Injected: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: ²\r\n\r\n".encode(),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * MOST_HEAD_BYTES,
    ],
)
def test_what_cannot_be_read_in_one_way_only_is_refused(bad: bytes) -> None:
    with pytest.raises(NotHttpError):
        AnswerReader().feed(bad)


@given(data=st.binary(max_size=400))
def test_no_bytes_do_anything_but_be_read_or_refused(data: bytes) -> None:
    reader = AnswerReader()
    try:
        reader.feed(data)
        reader.feed(b"HTTP/1.1 200 OK\r\n" + data)
    except NotHttpError:
        pass
    reader.feed_eof()
