"""`ridgeline models`: the model store of this machine."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from ridgeline.catalog.packaged import PACKAGED
from ridgeline.cli.engine_settings import engine_settings
from ridgeline.errors import SpecError
from ridgeline.serving.models.check import Fault
from ridgeline.serving.models.copying import Progress as Told
from ridgeline.serving.models.manifest import PREFIX, Version
from ridgeline.serving.models.store import ModelStore, Stored
from ridgeline.serving.models.weights import model_store
from ridgeline.serving.spec import ModelSpec
from ridgeline.show import number

_SHOWN = 12
_COLUMNS = ("name", "version", "size", "state", "used", "engine", "source")
_WIDE = 110
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_JSON = click.option("--json", "as_json", is_flag=True, help="The same as JSON.")


@click.group()
def models() -> None:
    """Keep versions of models on this machine, each named by the hash of what is in it.

    RIDGELINE_MODELS names another folder for them. In a spec: `model: store:NAME`, or `sha256:…`.
    """


@models.command()
@click.argument("source")
@click.option("--name", help="A name that leads to it; its file's where not given.")
@click.option("--engine", "settings", multiple=True, metavar="KEY=VALUE",
              help="A setting of its engine that belongs to it; repeatable.")  # fmt: skip
@click.option("--skip", multiple=True, metavar="PATTERN",
              help="Files to leave out, as 'original/*'; repeatable.")  # fmt: skip
@click.option("--pin", is_flag=True, help="It stays, whatever the limit.")
@_JSON
def add(
    source: str,
    name: str | None,
    settings: tuple[str, ...],
    skip: tuple[str, ...],
    pin: bool,
    as_json: bool,
) -> None:
    """Copy the model at SOURCE into the store, hashed on the way.

    SOURCE is a packaged model's name, a GGUF file, a Hugging Face folder, or a URL of either.
    """
    engine = engine_settings(settings)
    _check(engine)
    store = _store()
    known = {one.version.id for one in store.versions()}
    named = name or _named(source)
    with _progress("copying") as told:
        version = store.add(source, engine=engine, name=named, pin=pin, skip=skip, progress=told)
    if as_json:
        _echo(_shown(store, version))
        return
    was = "is here already" if version.id in known else "is added"
    files = "1 file" if len(version.files) == 1 else f"{len(version.files)} files"
    click.echo(f"{version.id} {was}: {_size(version.bytes)} in {files}")
    click.echo(f"{named} leads to it.   In a spec: model: store:{named}")


@models.command("list")
@_JSON
def list_versions(as_json: bool) -> None:
    """List the versions, the one that was used last first."""
    store = model_store()
    found = store.versions()
    limit = store.limit_bytes
    if as_json:
        held = {"bytes": store.bytes(), "limit_bytes": limit}
        _echo({"versions": [_data(one) for one in found], **held})
        return
    if not found:
        click.echo("No versions yet.\n  ridgeline models add smollm2-135m-instruct")
        return
    _print([_row(one) for one in found])
    click.echo(f"{_size(store.bytes())} in all, {_limit(limit)}")


@models.command()
@click.argument("references", nargs=-1, metavar="[VERSION]...")
@click.option("--repair", is_flag=True, help="Copy what is bad again from where it came from.")
@_JSON
def verify(references: tuple[str, ...], repair: bool, as_json: bool) -> None:
    """Read every byte again and compare. Exit status 1 where a file is bad."""
    store = _store()
    with _progress("reading") as told:
        read, faults = store.verify(references, progress=told)
    if as_json:
        bad = [{"version": PREFIX + one.digest, "path": one.path, "problem": one.problem}
               for one in faults]  # fmt: skip
        _echo({"read": [PREFIX + digest for digest in read], "bad": bad})
    else:
        _tell(read, faults)
    if faults and repair:
        with _progress("copying") as told:
            store.repair(faults, progress=told)
        click.echo("What was bad is copied again.", err=as_json)
    elif faults:
        raise SystemExit(1)


@models.command()
@click.argument("reference", metavar="VERSION")
@_JSON
def rm(reference: str, as_json: bool) -> None:
    """Remove a name, and with its last name a version; by its id, a version with all its names."""
    gone = model_store().remove(reference)
    if as_json:
        _echo({"version": PREFIX + gone.digest, "names": gone.names,
               "is_gone": gone.is_gone, "freed_bytes": gone.freed_bytes})  # fmt: skip
    elif gone.is_gone:
        click.echo(f"{PREFIX}{gone.digest} is removed: {_size(gone.freed_bytes)} free again")
    else:
        click.echo(f"{gone.names[0]} is removed; the version stays for its other names")


@models.command("name")
@click.argument("reference", metavar="VERSION")
@click.argument("name")
def name_version(reference: str, name: str) -> None:
    """Let NAME lead to VERSION from now on."""
    version = model_store().name(reference, name)
    click.echo(f"{name} leads to {version.id}")


@models.command()
@click.argument("reference", metavar="VERSION")
def pin(reference: str) -> None:
    """Keep VERSION here, whatever the limit."""
    click.echo(f"{model_store().pin(reference).id} is pinned")


@models.command()
@click.argument("reference", metavar="VERSION")
def unpin(reference: str) -> None:
    """Let VERSION leave where there is no room for it."""
    click.echo(f"{model_store().pin(reference, is_pinned=False).id} is not pinned")


@models.command()
@click.argument("size", required=False)
def limit(size: str | None) -> None:
    """Say how much the store may take, or set it to SIZE, as 200GB; `none` for no limit.

    The versions that were used longest ago leave first, and are copied again when they are used.
    """
    store = model_store()
    if size is not None:
        store.limit(None if size == "none" else size)
    click.echo(f"{_size(store.bytes())} in all, {_limit(store.limit_bytes)}")


# What is asked.


def _store() -> ModelStore:
    return model_store(waiting=lambda what: click.echo(f"another copies {what} ...", err=True))


def _check(engine: dict[str, Any]) -> None:
    """A slip must not become immutable. The engine is Ridgeline's where no kind is given."""
    try:
        ModelSpec.model_validate({"name": "model", "model": "model", "engine": engine})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"][2:]) or "engine"
        problem = first["msg"].removeprefix("Value error, ")
        raise SpecError(f"{field}: {problem}", where="--engine") from error


def _named(source: str) -> str:
    """A packaged model's name, else the file's or folder's in lower case, as `up` does it."""
    if source in PACKAGED:
        return source
    path = source.partition("?")[0].rstrip("/") if "://" in source else source
    named = Path(path).resolve().name if "://" not in source else path.rpartition("/")[2]
    return named.removesuffix(".gguf").lower()


# How it is written.


@contextmanager
def _progress(verb: str) -> Iterator[Told]:
    """A bar on a terminal, else a line for each tenth; on standard error, so that JSON is JSON."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(verb).told
        return
    columns = (TextColumn(verb), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(verb, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    """Progress in a pipe."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._tenths = 0

    def told(self, done: int, total: int) -> None:
        """A line where another tenth is done."""
        tenths = done * 10 // total if total else 10
        if tenths > self._tenths:
            self._tenths = tenths
            sys.stderr.write(f"{self._verb} {tenths * 10} % of {_size(total)}\n")


def _tell(read: list[str], faults: list[Fault]) -> None:
    for one in faults:
        click.echo(f"{PREFIX}{one.digest[:_SHOWN]}  {one.path}: {one.problem}")
    bad = {one.digest for one in faults}
    count = f"{len(read)} version{'' if len(read) == 1 else 's'} read"
    click.echo(f"{count}: {f'{len(bad)} bad' if bad else 'every byte is as it was'}")
    if bad:
        click.echo("  ridgeline models verify --repair")


def _row(one: Stored) -> tuple[str, ...]:
    version = one.version
    state = "here" if one.is_here else "not here"
    marks = [mark for mark, is_on in (("pinned", one.is_pinned), ("in use", one.is_used)) if is_on]
    engine = ", ".join(f"{key}={json.dumps(value)}" for key, value in version.engine.items())
    return (
        ", ".join(one.names),
        version.digest[:_SHOWN],
        _size(version.bytes),
        ", ".join([state, *marks]),
        datetime.fromtimestamp(one.used_ns / 1e9, UTC).strftime("%Y-%m-%d"),
        engine.replace('"', ""),
        version.source,
    )


def _data(one: Stored) -> dict[str, Any]:
    version = one.version
    return {
        "id": version.id,
        "names": one.names,
        "bytes": version.bytes,
        "is_here": one.is_here,
        "is_pinned": one.is_pinned,
        "is_used": one.is_used,
        "used_unix_s": one.used_ns / 1e9,
        "added_unix_s": version.added_ns / 1e9,
        "engine": dict(version.engine),
        "source": version.source,
        "files": [
            {"path": file.path, "bytes": file.bytes, "sha256": file.sha256}
            for file in version.files
        ],
    }


def _shown(store: ModelStore, version: Version) -> dict[str, Any]:
    return next(_data(one) for one in store.versions() if one.version.id == version.id)


def _size(size: int) -> str:
    """Decimal, as disks are sold and limits are written."""
    factor, unit = next((one for one in _UNITS if size >= one[0]), (1, "B"))
    return f"{number(size / factor)} {unit}"


def _limit(limit_bytes: int | None) -> str:
    return "no limit" if limit_bytes is None else f"of {_size(limit_bytes)} at most"


def _print(rows: list[tuple[str, ...]]) -> None:
    """A narrow terminal has no place for the sources."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=240)
    shown = _COLUMNS if console.width >= _WIDE else _COLUMNS[:-1]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in shown:
        is_word = column not in ("engine", "source")
        table.add_column(column, no_wrap=is_word, overflow="fold")
    table.columns[shown.index("size")].justify = "right"
    for row in rows:
        table.add_row(*map(escape, row[: len(shown)]))
    with console.capture() as written:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in written.get().splitlines()))


def _echo(value: object) -> None:
    click.echo(json.dumps(value, indent=1))
