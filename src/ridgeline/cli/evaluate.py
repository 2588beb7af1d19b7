"""`ridgeline evaluate`: whether a running deployment is what it was."""

import asyncio
import json
import os
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ridgeline.cli.databases import json_option
from ridgeline.cli.extras import needs
from ridgeline.errors import SpecError
from ridgeline.serving.spec import ModelSpec
from ridgeline.spec import load

if TYPE_CHECKING:  # the extra [gateway] is needed only once the command runs
    from ridgeline.serving.evaluate.reference import Reference
    from ridgeline.serving.policy.likeness import Likeness

DEFAULT_URL = "http://127.0.0.1:8000"
_COLUMNS = 80


@click.command()
@click.argument("model")
@click.argument("spec", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--url", help=f"The server.  [default: SPEC's gateway, or {DEFAULT_URL}]")
@click.option(
    "--save",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Make a reference of what it answers now: in FILE, or for SPEC's version.",
)
@click.option(
    "--against",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The reference.  [default: that of SPEC's version]",
)
@click.option(
    "--exact",
    is_flag=True,
    help="The same engine on the same kind of processor: not even rounding may differ.",
)
@click.option(
    "--longest",
    default=8192,
    show_default=True,
    type=click.IntRange(min=64),
    help="With --save: tokens of the longest prompt, where the server takes more.",
)
@click.option("--api-key", envvar="RIDGELINE_API_KEY", show_envvar=True)
@json_option
def evaluate(
    model: str,
    spec: Path | None,
    url: str | None,
    save: str | None,
    against: Path | None,
    exact: bool,
    longest: int,
    api_key: str | None,
    as_json: bool,
) -> None:
    """Compare the answers of a running MODEL with a reference, category by category.

    The server is any that speaks OpenAI's API and tells log-probabilities. A reference is made
    with --save, of a deployment that is known to be good. Exit status 1: a category failed.

    \b
    ridgeline evaluate smollm2-135m-instruct --save good.json
    ridgeline evaluate smollm2-135m-instruct --against good.json
    ridgeline evaluate chat platform.yaml --save       # rollouts hold the version to it
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    needs("aiohttp", "gateway")
    from ridgeline.serving.evaluate.evaluate import evaluate as compared
    from ridgeline.serving.evaluate.evaluate import make_reference
    from ridgeline.serving.evaluate.reference import read, write
    from ridgeline.serving.policy.config_faults import CRITERIA, EXACT

    if save is not None and against is not None:
        raise SpecError("a reference is made or used", where="--save", remedy="one of the two")
    path = _path(model, spec, Path(save) if save else against)
    root = _root(url or _gateway(spec))
    key = api_key or _key(spec)
    if save is not None:
        made = asyncio.run(make_reference(root, model, api_key=key, longest=longest))
        write(made, path)
        _tell_made(made, path, as_json=as_json)
        return
    criteria = EXACT if exact else CRITERIA
    result = asyncio.run(compared(read(path), root, model, api_key=key, criteria=criteria))
    if as_json:
        told = {"passed": result.passed, "reason": result.reason, **asdict(result)}
        click.echo(json.dumps(told, indent=1))
    else:
        _show(result)
    raise SystemExit(0 if result.passed else 1)


def _path(model: str, spec: Path | None, named: Path | None) -> Path:
    """The reference that is meant: a file, or that of the version which a spec names."""
    if named is not None:
        return named
    if spec is None:
        raise SpecError(
            "whose reference is not said", where="--against", remedy="--against FILE, or SPEC"
        )
    from ridgeline.serving.control.versions import version_of
    from ridgeline.serving.evaluate.reference import stored
    from ridgeline.serving.models.weights import settled

    # A name of the model store means the version that it has now, as for a rollout.
    return stored(version_of(settled(_model(spec, model))).id)


def _model(spec: Path, name: str) -> ModelSpec:
    models = load(spec).models
    for one in models:
        if one.name == name:
            return one
    remedy = f"one of: {', '.join(one.name for one in models)}"
    raise SpecError(f"{spec} has no model {name!r}", where="MODEL", remedy=remedy)


def _gateway(spec: Path | None) -> str:
    return DEFAULT_URL if spec is None else f"http://{load(spec).gateway.listen}"


def _root(url: str) -> str:
    """The server's root: "host:8000" and "http://host:8000/v1/" mean "http://host:8000"."""
    with_scheme = url if "://" in url else f"http://{url}"
    return with_scheme.rstrip("/").removesuffix("/v1")


def _key(spec: Path | None) -> str | None:
    """The clients' key that a spec's gateway wants."""
    variable = None if spec is None else load(spec).gateway.api_key_env
    return os.environ.get(variable) if variable else None


def _tell_made(made: "Reference", path: Path, *, as_json: bool) -> None:
    tokens = sum(len(answer.steps) for answer in made.answers)
    longest = max((answer.prompt_tokens or 0 for answer in made.answers), default=0)
    if as_json:
        told = {"file": str(path), "prompts": len(made.cases), "tokens": tokens}
        click.echo(json.dumps({**told, "longest_prompt_tokens": longest, "repeats": made.repeats}))
        return
    click.echo(f"{path}: {len(made.cases)} prompts, {tokens:,} tokens of answers")
    click.echo(f"  the longest prompt has {longest:,} tokens")
    if not made.repeats:
        click.echo(
            "  a seed does not repeat an answer here: only large changes of defaults are found"
        )


def _show(result: "Likeness") -> None:
    """The answer first, then every category."""
    failed = sum(not one.passed for one in result.findings)
    total = len(result.findings)
    head = f"{failed} of {total} categories are not" if failed else f"all {total} categories are"
    click.echo(f"{head} as in the reference")
    for fault in result.faults:
        click.echo(_filled(f"config fault found: {fault.kind}: {fault.evidence}", indent=2))
    click.echo(f"  {'':<14}{'':<6}{'prompts':>8}{'tokens':>8}{'difference':>12}{'same top':>10}")
    for one in result.findings:
        seen = one.measured
        numbers = (
            f"{seen.positions:>8}{seen.difference:>12.4f}{seen.same_top:>10.1%}" if seen else ""
        )
        mark = "pass" if one.passed else "FAIL"
        click.echo(f"  {one.category:<14}{mark:<6}{one.prompts:>8}{numbers}")
        if not one.passed:
            click.echo(_filled(one.reason, indent=6))


def _filled(text: str, *, indent: int) -> str:
    """In lines that fit a terminal."""
    return textwrap.fill(
        text, _COLUMNS, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2)
    )
