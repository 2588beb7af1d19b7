"""The layouts of trace files that are known, each told by the fields of its first row.

A reader turns one row into the requests that it holds: most hold one, a conversation holds as many
as it has turns. It raises ValueError, TypeError or KeyError for what it cannot read.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ridgeline.errors import SpecError
from ridgeline.workload.conversations import BLOCK_TOKENS as CONVERSATION_BLOCK
from ridgeline.workload.conversations import conversation
from ridgeline.workload.event_log import BLOCK_TOKENS as EVENT_BLOCK
from ridgeline.workload.event_log import Events, with_answers
from ridgeline.workload.numbers import name, seconds, tokens
from ridgeline.workload.request import Request
from ridgeline.workload.rows import Row

Read = Callable[[Row], Iterable[Request]]
Finish = Callable[[Sequence[Request]], tuple[list[Request], str]]
_MOST_BLOCK = 1 << 64


@dataclass(frozen=True, slots=True)
class Format:
    """One layout: which fields tell it, and `reader`, which makes what reads the rows of one file.

    `ordered` says that its rows come in order of time, so that others are worth a note.
    `notes` are what everybody should know of its numbers. `finish` sees all requests, and says what
    it has changed.
    """

    name: str
    fields: tuple[str, ...]
    reader: Callable[[], Read]
    block_tokens: int = 0
    timed: bool = True
    ordered: bool = True
    notes: tuple[str, ...] = ()
    finish: Finish | None = None


def _clock_s(text: str) -> float:
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _azure() -> Read:
    return lambda row: (
        Request(  # the wall clock is only ever used as a difference
            _clock_s(row["TIMESTAMP"]), tokens(row["ContextTokens"]), tokens(row["GeneratedTokens"])
        ),
    )


def _burstgpt() -> Read:
    return lambda row: (
        Request(
            seconds(row["Timestamp"]),
            tokens(row["Request tokens"]),
            tokens(row["Response tokens"]),
            session=name(row.get("Session ID")),
        ),
    )


def _vidur() -> Read:
    return lambda row: (
        Request(
            seconds(row["arrived_at"]),
            tokens(row["num_prefill_tokens"]),
            tokens(row["num_decode_tokens"]),
        ),
    )


def _vidur_metrics() -> Read:
    return lambda row: (
        Request(
            seconds(row["Time"]),
            tokens(row["PromptTokenCount"]),
            tokens(row["CompletionTokenCount"]),
        ),
    )


def _lengths() -> Read:
    return lambda row: (
        Request(0.0, tokens(row["num_prefill_tokens"]), tokens(row["num_decode_tokens"])),
    )


def _blocks(row: Row) -> tuple[int, ...]:
    blocks = row["hash_ids"]
    if not isinstance(blocks, Sequence) or not all(type(one) is int for one in blocks):
        raise ValueError("hash_ids is no list of whole numbers")
    if not all(0 <= one < _MOST_BLOCK for one in blocks):
        raise ValueError("a hash id is negative or has more than 64 bits")
    return tuple(blocks)


def _chained_blocks(row: Row) -> tuple[int, ...]:
    blocks = _blocks(row)
    if len(set(blocks)) < len(blocks):
        raise ValueError("hash_ids names a block twice: its blocks are no prefixes")
    return blocks


def _mooncake(field: str) -> Callable[[], Read]:
    return lambda: (
        lambda row: (
            Request(
                seconds(row[field]) / 1e3,
                tokens(row["input_length"]),
                tokens(row["output_length"]),
                _chained_blocks(row),
                session=name(row.get("session_id")),
            ),
        )
    )


def _bailian() -> Read:
    """Each block is hashed alone: an id here stands for the block and everything before it."""
    names: dict[tuple[int, int], int] = {}
    roots: dict[str, str] = {}

    def read(row: Row) -> tuple[Request]:
        chat, parent = name(row["chat_id"]), name(row.get("parent_chat_id"))
        root = roots[chat] = roots.get(parent, chat)
        before, blocks = -1, []
        for block in _blocks(row):
            before = names.setdefault((before, block), len(names))
            blocks.append(before)
        at_s = seconds(row["timestamp"])
        sizes = tokens(row["input_length"]), tokens(row["output_length"])
        return (Request(at_s, *sizes, tuple(blocks), session=root),)

    return read


#: The first whose fields are all there is taken, so the more special one stands first.
FORMATS = (
    Format("Azure", ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _azure),
    Format("BurstGPT", ("Timestamp", "Request tokens", "Response tokens"), _burstgpt),
    Format("Vidur", ("arrived_at", "num_prefill_tokens", "num_decode_tokens"), _vidur),
    Format("Vidur replay", ("Time", "PromptTokenCount", "CompletionTokenCount"), _vidur_metrics),
    Format("lengths", ("num_prefill_tokens", "num_decode_tokens"), _lengths, timed=False),
    Format(
        "Qwen-Bailian",
        ("chat_id", "timestamp", "input_length", "output_length", "hash_ids"),
        _bailian,
        block_tokens=16,
    ),
    Format(
        "LLMServingSim",
        ("timestamp_ms", "input_length", "output_length", "hash_ids"),
        _mooncake("timestamp_ms"),
        block_tokens=16,
    ),
    Format(
        "Mooncake",
        ("timestamp", "input_length", "output_length", "hash_ids"),
        _mooncake("timestamp"),
        block_tokens=512,
    ),
    Format(
        "ShareGPT",
        ("conversations",),
        lambda: conversation,
        block_tokens=CONVERSATION_BLOCK,
        timed=False,
        notes=("tokens were counted as 4 bytes of text each: the file has no counts",),
    ),
    Format(
        "Ridgeline events",
        ("event",),
        Events,
        block_tokens=EVENT_BLOCK,
        ordered=False,
        finish=with_answers,
    ),
)


def format_of(row: Row, where: str) -> Format:
    """The layout that a first row shows. SpecError where there is none like it."""
    for layout in FORMATS:
        if all(field in row for field in layout.fields):
            return layout
    seen = ", ".join(str(field)[:40] for field in list(row)[:20])
    raise SpecError(
        f"has no known layout; its fields are {seen or 'none'}",
        where=where,
        remedy="; ".join(f"{one.name}: {', '.join(one.fields)}" for one in FORMATS),
    )
