"""`ridgeline doctor`: what is wrong with this installation, and what mends it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from ridgeline.platform.doctor.examine import examine
from ridgeline.platform.doctor.finding import Finding, Level

_MARKS = {
    Level.WRONG: "[red]wrong[/]  ",
    Level.WARNING: "[yellow]warning[/]",
    Level.OK: "[green]ok[/]     ",
}


@click.command()
@click.argument("spec", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def doctor(spec: Path | None, as_json: bool) -> None:
    """Say what is wrong with this installation, and what mends it.

    With SPEC also whether what that platform.yaml asks for is here: its database, ports, keys,
    weights, memory. Nothing is changed. Exit status 1 where something is wrong.
    """
    found = examine(spec)
    count = {level: sum(one.level is level for one in found) for level in Level}
    if as_json:
        told = {"wrong": count[Level.WRONG], "warnings": count[Level.WARNING]}
        click.echo(json.dumps({**told, "findings": [asdict(one) for one in found]}, indent=1))
    else:
        _show(Console(highlight=False), found, count[Level.WRONG], count[Level.WARNING])
    raise SystemExit(1 if count[Level.WRONG] else 0)


def _show(console: Console, found: Sequence[Finding], wrongs: int, warnings: int) -> None:
    """The answer, then what to do, then what is right."""
    console.print(f"[bold]{_answer(wrongs, warnings)}[/]")
    for level in Level.WRONG, Level.WARNING, Level.OK:
        for one in found:
            if one.level is not level:
                continue
            console.print(f"{_MARKS[level]}  {one.check}: {escape(one.said)}", soft_wrap=True)
            if level is not Level.OK:
                console.print(f"         {escape(one.means)}", soft_wrap=True)
                console.print(f"         try: {escape(one.remedy)}", soft_wrap=True)


def _answer(wrongs: int, warnings: int) -> str:
    if not wrongs and not warnings:
        return "Nothing is wrong."
    watch = f"{warnings} {'thing' if warnings == 1 else 'things'} to know of"
    if not wrongs:
        return f"Nothing is wrong; {watch}."
    verb = "is" if wrongs == 1 else "are"
    return f"{wrongs} {verb} wrong{f', {watch}' if warnings else ''}."
