"""The options for limits and budgets, and limits in words; of tenants and of keys alike."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ridgeline.errors import SpecError
from ridgeline.serving.tenant_spec import LimitsSpec
from ridgeline.show import number

F = TypeVar("F", bound=Callable[..., Any])

#: What an option says to take a limit away.
_NONE = "none"
_COUNTS = {
    "requests_per_minute": "requests/min",
    "input_tokens_per_minute": "input tokens/min",
    "output_tokens_per_minute": "output tokens/min",
    "concurrent": "at once",
}


def limit_options(command: F) -> F:
    """Options that `limits_given` reads."""
    told = {
        "requests_per_minute": "In any 60 seconds, e.g. 600.",
        "input_tokens_per_minute": "In any 60 seconds, e.g. 2M.",
        "output_tokens_per_minute": "In any 60 seconds, e.g. 400k.",
        "concurrent": "Requests at once.",
    }
    command = click.option("--timezone", help="Whose midnight begins a budget anew; UTC.")(command)
    command = click.option(
        "--budget", metavar="USD[/day|/month]", help="Money, a month's where not said."
    )(command)
    for name, text in reversed(told.items()):
        option = f"--{name.replace('_', '-')}"
        command = click.option(option, metavar="N", help=text)(command)
    return command


def limits_given(options: dict[str, str | None]) -> dict[str, Any]:
    """The limits that options name, for `LimitsSpec`; "none" takes one away."""
    limits: dict[str, Any] = {
        name: _or_none(value) for name in _COUNTS if (value := options[name]) is not None
    }
    budget, zone = options["budget"], options["timezone"]
    if budget is None and zone is not None:
        remedy = "--budget USD/day or USD/month beside it"
        raise SpecError("belongs to a budget", where="--timezone", remedy=remedy)
    if budget is not None:
        limits["budget"] = _budget(budget, zone) if budget != _NONE else None
    return limits


def _or_none(value: str) -> str | None:
    return None if value == _NONE else value


def _budget(written: str, zone: str | None) -> dict[str, str]:
    usd, _, per = written.removeprefix("$").partition("/")
    budget = {"usd": usd, "per": per or "month"}
    return budget | ({"timezone": zone} if zone is not None else {})


def limits_in_words(limits: LimitsSpec) -> str:
    """`"600 requests/min, 4 at once, $99.95/day Europe/Berlin"`."""
    words = [
        f"{number(value, 12)} {noun}"
        for name, noun in _COUNTS.items()
        if (value := getattr(limits, name)) is not None
    ]
    if (budget := limits.budget) is not None:
        zone = "" if budget.timezone == "UTC" else f" {budget.timezone}"
        words.append(f"${budget.usd:f}/{budget.per}{zone}")
    return ", ".join(words) or "no limits"
