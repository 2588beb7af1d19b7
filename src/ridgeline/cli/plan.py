"""`ridgeline plan`: lists topics, or answers one with its working."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import Asked, Kind, Parameter, Topic, ask, find_topic
from ridgeline.working.data import as_data, sensitivity_data
from ridgeline.working.following import following
from ridgeline.working.lines import Line, plain, styled
from ridgeline.working.markdown import markdown
from ridgeline.working.sensitivity import Sensitivity, sensitivity
from ridgeline.working.text import about_lines, answer_lines, headline, listing, remark_lines
from ridgeline.working.tornado_text import sensitivity_lines
from ridgeline.working.why import found as steps_called
from ridgeline.working.why import why as derivation

_WIDTH, _WIDE = 80, 100
_TREES = 3
_SPECS = (".yaml", ".yml")


class Topics(click.Group):
    """A group with one command for each topic, made from its parameters."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every topic."""
        return list(topics())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a topic; SpecError names the nearest."""
        if cmd_name.endswith(_SPECS):
            raise SpecError(
                "planning a whole platform from its description is not built yet",
                where=cmd_name,
                remedy="one question at a time: `ridgeline plan` lists the topics",
            )
        topics()
        return _command(find_topic(cmd_name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Topics by subject."""
        formatter.write(f"\n{plain(listing(topics()))}\n")


@click.group(cls=Topics, invoke_without_command=True)
@click.pass_context
def plan(ctx: click.Context) -> None:
    """Answer a question of capacity or cost, with the working: every number says where it is from.

    `ridgeline plan TOPIC --help` lists what a topic can be told. Without a topic, all are listed.
    """
    if ctx.invoked_subcommand is None:
        _print(listing(topics()))
        click.echo("\nridgeline plan TOPIC --help | ridgeline plan TOPIC --why")


def _command(topic: Topic) -> click.Command:
    options: list[click.Parameter] = [_option(one) for one in topic.parameters.values()]
    options += [
        click.Option(
            ["--set", "settings"],
            multiple=True,
            metavar="NAME=VALUE",
            help="Give any input, catalog value or intermediate another value.",
        ),
        click.Option(
            ["--why"],
            is_flag=False,
            flag_value="",
            metavar="[NAME]",
            help="The derivation of the answer, or of any step by its name.",
        ),
        click.Option(
            ["--sweep", "sweeps"],
            multiple=True,
            metavar="NAME=a:b[:step]",
            help="Answer at many points: a:b, a:b:step, a:b:x2, or a,b,c; marks the knee and"
            " where what binds changes.",
        ),
        click.Option(
            ["--sensitivity"], is_flag=True, help="What each input moves, by its interval or ±10 %."
        ),
        click.Option(
            ["--value"], metavar="NAME", help="Which value a sweep or --sensitivity looks at."
        ),
        click.Option(
            ["--versus"], metavar="NAME", help="A value that the sweep's is traded against."
        ),
        click.Option(
            ["--slo"], metavar="NAME=VALUE", help="What a value may be at most in the sweep."
        ),
        click.Option(
            ["--plot"],
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE.svg|png",
            help="Draw the sweep, the sensitivity, or a roofline.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Everything as JSON."),
        click.Option(["--markdown", "as_markdown"], is_flag=True, help="A page of Markdown."),
    ]
    help_text = f"{topic.summary}\n\n{topic.details}"

    def run(**raw: Any) -> None:
        _run(topic, raw)

    return _TopicCommand(topic.name, params=options, callback=run, help=help_text)


class _TopicCommand(click.Command):
    """A topic's command; a wrong option and one without a value are refused as all bad input."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Click's, but for the complaint: SpecError with an example of a value."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            near = ", ".join(error.possibilities or ())
            remedy = near or f"`ridgeline plan {self.name} --help` lists the options"
            raise SpecError("no such option", where=error.option_name, remedy=remedy) from error
        except click.BadOptionUsage as error:
            name = str(error.option_name)
            topic = find_topic(self.name or "")
            usual = next(
                (_default(one) for one in topic.parameters.values() if f"--{one.option}" == name),
                "its value",
            )
            raise SpecError("has no value", where=name, remedy=shlex.join([name, usual])) from error


def _option(parameter: Parameter) -> click.Option:
    names = list(dict.fromkeys([f"--{parameter.option}", f"--{parameter.name.replace('_', '-')}"]))
    told = f"{parameter.doc} [{_default(parameter)}]"
    if parameter.kind is Kind.CHOICE:
        told = f"{parameter.doc} One of {', '.join(parameter.options)}. [{parameter.default}]"
    metavar = (parameter.unit or parameter.kind.value).upper() if parameter.is_number else None
    return click.Option(
        [parameter.name, *names],
        help=told,
        metavar=metavar or parameter.kind.upper(),
        multiple=True,  # so that a second one is seen, and refused
        default=None,
    )


def _default(parameter: Parameter) -> str:
    if parameter.kind is Kind.FLAG:
        return "yes" if parameter.default else "no"
    return str(parameter.default)


def _run(topic: Topic, raw: dict[str, Any]) -> None:
    """Answer, then print in the form that was asked for; exit status 1 where the answer is no."""
    given = _given(topic, raw)
    settings = _settings(raw["settings"])
    _check(raw)
    swept = tornado = None
    if raw["sweeps"]:
        from ridgeline.working.sweep import sweep

        swept = sweep(
            topic.name,
            raw["sweeps"][0],
            given,
            settings,
            value=raw["value"] or "",
            versus=raw["versus"] or "",
            slo=raw["slo"] or "",
        )
        asked = swept.asked
    else:
        asked = ask(topic.name, given, settings)
    if raw["sensitivity"]:
        tornado = sensitivity(topic.name, given, settings, value=raw["value"] or "")
    if raw["plot"]:
        _draw(asked, swept, tornado, raw["plot"])
    if raw["as_json"]:
        _echo_json(asked, swept, tornado)
    else:
        _show(asked, swept, tornado, raw)
    sys.exit(0 if asked.answer.ok else 1)


def _given(topic: Topic, raw: dict[str, Any]) -> dict[str, str]:
    """What was given of the topic's parameters; SpecError where one is given twice."""
    given: dict[str, str] = {}
    for name, parameter in topic.parameters.items():
        for one in raw[name] or ():
            if name in given:
                raise SpecError("is given twice", where=f"--{parameter.option}", remedy="once")
            given[name] = one
    return given


def _settings(written: tuple[str, ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for one in written:
        name, equals, value = one.partition("=")
        if not equals or not name.strip():
            raise SpecError(f'"{one}" sets nothing', where="--set", remedy="NAME=VALUE")
        if name.strip() in settings:
            raise SpecError(f"{name.strip()} is set twice", where="--set", remedy="once")
        settings[name.strip()] = value.strip()
    return settings


def _check(raw: dict[str, Any]) -> None:
    """Refuse options that would not do anything."""
    working = bool(raw["sweeps"]) or raw["sensitivity"]
    if len(raw["sweeps"]) > 1:
        raise SpecError("one input at a time", where="--sweep", remedy="--set fixes the others")
    if raw["as_json"] and raw["as_markdown"]:
        raise SpecError("JSON or Markdown, not both", where="--markdown", remedy="one of them")
    for name in ("value", "versus", "slo"):
        if raw[name] and not (raw["sweeps"] or (working and name == "value")):
            raise SpecError("says what a sweep looks at", where=f"--{name}", remedy="--sweep")
    if raw["plot"]:
        from ridgeline.working.pictures import check_place

        if raw["sweeps"] and raw["sensitivity"]:
            raise SpecError(
                "draws a sweep or a sensitivity", where="--plot", remedy="one of the two at a time"
            )
        check_place(raw["plot"])


def _draw(asked: Asked, swept: Any, tornado: Sensitivity | None, path: Path) -> None:
    if tornado is not None:
        from ridgeline.working.tornado_picture import draw_sensitivity

        draw_sensitivity(tornado, path)
    elif swept is not None:
        from ridgeline.working.sweep_picture import draw_sweep

        draw_sweep(swept, path)
    else:
        from ridgeline.working.roofline_picture import draw_roofline

        draw_roofline(asked, path)


def _echo_json(asked: Asked, swept: Any, tornado: Sensitivity | None) -> None:
    data = as_data(asked)
    if swept is not None:
        from ridgeline.working.sweep_data import sweep_data

        data["sweep"] = sweep_data(swept)
    if tornado is not None:
        data["sensitivity"] = sensitivity_data(tornado)
    click.echo(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False))


def _show(asked: Asked, swept: Any, tornado: Sensitivity | None, raw: dict[str, Any]) -> None:
    wide = _WIDE if raw["as_markdown"] else _width(_WIDTH)
    parts: dict[str, list[Line]] = {}
    if swept is not None:
        from ridgeline.working.sweep_text import sweep_lines

        parts["Sweep"] = sweep_lines(swept, wide)
    if tornado is not None:
        parts["Sensitivity"] = sensitivity_lines(tornado, wide)
    if raw["as_markdown"]:
        click.echo(markdown(asked, parts))
        return
    trees = _trees(asked, raw["why"])
    if raw["why"]:
        lines: list[Line] = []
    elif trees:
        lines = headline(asked, wide)
    else:
        lines = [] if parts else answer_lines(asked, wide, following=following(asked))
    for part in [*parts.values(), *trees]:
        lines += [[], *part] if lines else part
    if parts and not trees:
        lines += about_lines(asked, wide) + remark_lines(asked, wide)
    if raw["plot"]:
        lines.append([(f"  drawn: {shlex.quote(str(raw['plot']))}", "dim")])
    _print(lines)


def _trees(asked: Asked, named: str | None) -> list[list[Line]]:
    if named is None:
        return []
    name = named or next(iter(asked.answer.values))
    steps = steps_called(asked, name)
    wide = _width(_WIDE)
    trees = [derivation(step, name if len(steps) == 1 else "", wide) for step in steps[:_TREES]]
    if len(steps) > _TREES:
        trees.append([[(f"{len(steps) - _TREES} more steps of this name; --json has them", "dim")]])
    return trees


def _width(usual: int) -> int:
    """As wide as usual in a pipe; on a terminal as it allows, up to 100 columns."""
    if not sys.stdout.isatty():
        return usual
    from rich.console import Console

    return max(60, min(_WIDE, Console().width))


def _print(lines: list[Line]) -> None:
    if not sys.stdout.isatty():
        click.echo(plain(lines))
        return
    from rich.console import Console

    Console(highlight=False).print(styled(lines), soft_wrap=True)
