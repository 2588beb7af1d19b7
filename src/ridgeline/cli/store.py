"""`ridgeline store`: back a platform's database up, and put it back or into another one."""

from pathlib import Path

import click

from ridgeline.cli.databases import (
    database_option,
    echo_json,
    json_option,
    named_url,
    placed,
    same_place,
    spec_argument,
)
from ridgeline.cli.extras import needs
from ridgeline.errors import SpecError

_file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.group()
def store() -> None:
    """Back up and restore a platform's database: tenants, keys and the ledger.

    SPEC is the platform.yaml whose database is meant; without it the default platform's.
    """


@store.command()
@_file_argument
@spec_argument
@database_option
@json_option
def backup(file: Path, spec: Path | None, database: str | None, as_json: bool) -> None:
    """Write every row to FILE, all as of one moment, while the gateway runs on."""
    needs("sqlalchemy", "gateway")
    from ridgeline.store.backup import backup as write
    from ridgeline.store.database import open_store

    _refuse_spec(file, "backup")
    with placed(spec, database):
        engine = open_store(named_url(spec, database), create=False)
    try:
        rows = write(engine, file)
    finally:
        engine.dispose()
    _tell(file, rows, as_json, f"{rows:,} rows are in {file}")


@store.command()
@_file_argument
@spec_argument
@database_option
@json_option
def restore(file: Path, spec: Path | None, database: str | None, as_json: bool) -> None:
    """Put what `backup` wrote into an empty database, of either kind: all of it, or nothing."""
    needs("sqlalchemy", "gateway")
    from ridgeline.store.backup import restore as put_back

    _refuse_spec(file, "restore")
    rows = put_back(named_url(spec, database), file)
    _tell(file, rows, as_json, f"{rows:,} rows of {file} are back")


def _refuse_spec(file: Path, verb: str) -> None:
    if file.suffix in (".yaml", ".yml"):
        remedy = f"ridgeline store {verb} FILE{same_place(file, None)}"
        raise SpecError("is a spec, not a backup", where=str(file), remedy=remedy)


def _tell(file: Path, rows: int, as_json: bool, words: str) -> None:
    if as_json:
        echo_json({"file": str(file), "rows": rows})
    else:
        click.echo(words)
