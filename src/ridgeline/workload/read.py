"""Reads a trace file: what is in it is told by its content, never by its name."""

import tarfile
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

from ridgeline.errors import SpecError
from ridgeline.workload import example, servegen
from ridgeline.workload.formats import Format, format_of
from ridgeline.workload.request import Request
from ridgeline.workload.rows import Numbered, as_text, rows_of, unpacked
from ridgeline.workload.trace import Trace, from_zero, in_order, is_in_order, spread_ticks

_TAR_AT, _TAR = 257, b"ustar"


def read_trace(
    path: Path,
    *,
    speed: float = 1.0,
    limit: int | None = None,
    seed: int = 0,
    where: str = "--trace",
) -> Trace:
    """Read a trace (plain, gzip or xz): its first `limit` requests, or the packaged `example`.

    Requests come out ordered, the first at 0 s, times divided by `speed`. Rows without a prompt
    or an output are left out. Where the recording clock ticked in steps of half a second or more
    (Mooncake's: 3 s), requests that share an instant are spread over their step. `seed` is for
    what is drawn: ServeGen's files have clients and no requests. Raises SpecError for a file that
    is missing, torn or of no known layout.
    """
    path = example.found(path)
    if path.is_dir():
        return _drawn(servegen.of_folder(path, where), path, speed, limit, seed)
    with unpacked(path, where) as file:
        if file.peek(512)[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
            try:
                with tarfile.open(fileobj=file, mode="r|") as archive:
                    clients = servegen.of_archive(archive, path, where)
            except tarfile.TarError as error:
                raise SpecError(f"{path} cannot be read: {error}", where=where) from error
            return _drawn(clients, path, speed, limit, seed)
        with as_text(file) as text:
            return _recorded(rows_of(text, path, format_of), path, speed, limit, where)


def _recorded(
    rows: Iterator[Numbered], path: Path, speed: float, limit: int | None, where: str
) -> Trace:
    first = next(rows, None)
    if first is None:
        raise SpecError(f"{path} is empty, or holds no requests", where=where)
    layout = format_of(first[1], f"{path}, {first[0]}")
    read = list(islice(_requests(layout, first, rows, path), limit))
    told = ""
    if layout.finish is not None:
        read, told = layout.finish(read)
    kept = [one for one in read if one.prompt_tokens > 0 and one.output_tokens > 0]
    if not kept:
        raise SpecError(f"{path} holds no requests", where=where)
    notes = [*layout.notes, *([told] if told else [])]
    if len(kept) < len(read):
        notes.append(f"{len(read) - len(kept)} rows without prompt or output left out")
    if layout.timed and not is_in_order(kept):
        kept = in_order(kept)
        if layout.ordered:
            notes.append("rows were not in order of time, and were sorted")
    spread = spread_ticks(kept) if layout.timed else kept
    if spread is not kept:
        notes.append("requests recorded at one tick of a coarse clock were spread over the tick")
    has_blocks = any(one.blocks for one in spread)
    return Trace(
        path.name,
        from_zero(spread, speed),
        layout.block_tokens if has_blocks else 0,
        layout.timed,
        tuple(notes),
        layout.name,
    )


def _requests(
    layout: Format, first: Numbered, rows: Iterator[Numbered], path: Path
) -> Iterator[Request]:
    read = layout.reader()
    place, row = first
    while True:
        try:
            yield from read(row)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise SpecError(
                f"cannot be read as {layout.name}: {_said(error)}",
                where=f"{path}, {place}",
                remedy=f"each row needs {', '.join(layout.fields)}",
            ) from error
        following = next(rows, None)
        if following is None:
            return
        place, row = following


def _said(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _drawn(
    clients: list[servegen.Client], path: Path, speed: float, limit: int | None, seed: int
) -> Trace:
    @lru_cache(maxsize=1)
    def draw(seed: int) -> tuple[Request, ...]:
        requests = tuple(islice(servegen.requests(clients, seed), limit))
        return from_zero(requests, speed) if requests else ()

    requests = draw(seed)
    if not requests:
        raise SpecError(f"{path}: its clients ask for nothing", where="--trace")
    notes = servegen.notes(clients)
    return Trace(path.name, requests, 0, True, notes, "ServeGen", draw)
