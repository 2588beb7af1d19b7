"""`ridgeline check`: recompute what is claimed, and say what holds."""

import json
import sys
from pathlib import Path

import click

from ridgeline.errors import SpecError
from ridgeline.platform.claims import Checked, check_ledger, find, of_system
from ridgeline.platform.claims_text import as_data, explanation, listing
from ridgeline.platform.own_claims import check_own, find_own
from ridgeline.working.lines import Line, plain, styled


@click.group()
def check() -> None:
    """Recompute what is claimed, and say what holds."""


@check.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--why", metavar="C027", help="One claim with its derivation.")
@click.option("--system", metavar="S100", help="Only the claims about one system.")
@click.option("--wrong", is_flag=True, help="Only those where the stated number is not right.")
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON.")
def claims(
    file: Path | None, why: str | None, system: str | None, wrong: bool, as_json: bool
) -> None:
    """Recompute the field's usual numbers, or the claims in a FILE.csv of yours.

    FILE has the columns claim, working, unit, stated and, where wanted, tolerance.
    Exit status 1 where one of our numbers, or one stated in FILE, does not come out; 2 where a
    row of FILE is not as it should be, after all others were checked.
    """
    if why and wrong:
        raise SpecError("--why is about one claim", where="--wrong", remedy="one of them")
    checked = _own(file, why, system) if file else _ours(why, system)
    shown = [one for one in checked if one.is_folklore_wrong or one.error or not wrong]
    if as_json:
        click.echo(json.dumps({"claims": [as_data(one) for one in shown]}, indent=1))
    elif why:
        _print([line for one in checked for line in explanation(one)])
    else:
        _print(listing(shown, is_own=file is not None))
    sys.exit(_status(checked, is_own=file is not None))


def _status(checked: list[Checked], *, is_own: bool) -> int:
    """The exit status, once every row that was refused is told."""
    refused = [one.error for one in checked if one.error]
    for error in refused:
        click.echo(f"ridgeline: {error}", err=True)
    if refused:
        return 2
    return int(any(one.is_fault or (is_own and one.is_folklore_wrong) for one in checked))


def _ours(why: str | None, system: str | None) -> list[Checked]:
    if why and system:
        raise SpecError("one claim, or those of one system", where="--why", remedy="one of them")
    if why:
        return check_ledger([find(why)])
    return check_ledger(of_system(system) if system else None)


def _own(file: Path, why: str | None, system: str | None) -> list[Checked]:
    if system:
        raise SpecError("a file's claims have no system", where="--system", remedy="no FILE")
    checked = check_own(file)
    if not why:
        return checked
    found = find_own(checked, why)
    if found.error:
        raise found.error
    return [found]


def _print(lines: list[Line]) -> None:
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(styled(lines), soft_wrap=True, highlight=False)
    else:
        click.echo(plain(lines))
