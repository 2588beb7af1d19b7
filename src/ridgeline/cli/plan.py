"""`ridgeline plan`: lists topics, or answers one with its working."""

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ridgeline.platform.plan import topics
from ridgeline.show import show
from ridgeline.topics import Asked, Parameter, Topic, ask, find_topic
from ridgeline.working.why import why


class Topics(click.Group):
    """A group with one command for each topic, made from its parameters."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every topic."""
        return list(topics())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a topic; SpecError names the nearest."""
        topics()
        return _command(find_topic(cmd_name))


@click.group(cls=Topics, invoke_without_command=True)
@click.pass_context
def plan(ctx: click.Context) -> None:
    """What a platform needs, what it costs, and why: every number with its working."""
    if ctx.invoked_subcommand is None:
        _list()


def _list() -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("subject", "topic", "answers"):
        table.add_column(column)
    for topic in topics().values():
        table.add_row(topic.subject, topic.name, topic.summary)
    Console().print(table)


def _command(topic: Topic) -> click.Command:
    options: list[click.Parameter] = [_option(one) for one in topic.parameters.values()]
    options += [
        click.Option(["--set", "sets"], multiple=True, metavar="NAME=VALUE", help="Set any step."),
        click.Option(["--why"], is_flag=False, flag_value="", metavar="[NAME]", help="Derivation."),
        click.Option(["--json", "as_json"], is_flag=True, help="Everything as JSON."),
    ]

    def run(sets: tuple[str, ...], why: str | None, as_json: bool, **raw: Any) -> None:
        given = {name: value for name, value in raw.items() if value is not None}
        overrides = dict(one.partition("=")[::2] for one in sets)
        _answer(ask(topic.name, given, overrides), why, as_json)

    return click.Command(topic.name, params=options, callback=run, help=topic.summary)


def _option(parameter: Parameter) -> click.Option:
    names = list(dict.fromkeys([f"--{parameter.option}", f"--{parameter.name.replace('_', '-')}"]))
    return click.Option([parameter.name, *names], help=f"{parameter.doc} [{parameter.default}]")


def _answer(asked: Asked, named: str | None, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({k: v.value for k, v in asked.answer.values.items()}))
        return
    values = asked.answer.values
    shown = {name: show(value) for name, value in values.items()}
    click.echo(asked.answer.says.format_map({k: _text(v) for k, v in asked.inputs.items()} | shown))
    for name, value in values.items():
        click.echo(f"  {name}  {show(value)}")
    if named is not None:
        name = named or next(iter(values))
        for step in asked.find(name):
            click.echo("\n".join(why(step, name)))


def _text(value: Any) -> str:
    return show(value) if hasattr(value, "unit") else getattr(value, "name", str(value))
