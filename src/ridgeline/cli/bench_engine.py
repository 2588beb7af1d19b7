"""`ridgeline bench engine`: one engine in this process, how long its steps take and where.

Exit status: 0; 2 bad input.
"""

import json
from typing import TYPE_CHECKING, Any

import click

from ridgeline.catalog.packaged import DEFAULT_MODEL
from ridgeline.cli.extras import needs
from ridgeline.errors import SpecError
from ridgeline.paths import cache_home
from ridgeline.serving.models.weights import weights

if TYPE_CHECKING:
    from ridgeline.serving.engine.step_profile import Profile

COUNT = click.IntRange(min=1)
DECODE_STEPS, PROMPTS = 64, 8
NOTED = {"rope": "rope + cache", "gate_up": "gate_up + silu"}


@click.command()
@click.argument("model", default=DEFAULT_MODEL)
@click.option("--profile", is_flag=True, help="Show where the milliseconds of a step go.")
@click.option("--batch", type=COUNT, help="Sequences that decode side by side.  [default: 16]")
@click.option("--context", type=COUNT, help="Tokens that each of them has.  [default: 256]")
@click.option("--prompt", type=COUNT, help="Prompts of so many tokens instead, one at a time.")
@click.option("--steps", type=COUNT, help="Steps, or prompts, that are timed.  [default: 64, 8]")
@click.option(
    "--dtype", default="bf16", show_default=True, type=click.Choice(["bf16", "fp32", "int8"])
)
@click.option(
    "--kv-cache-dtype", default="auto", show_default=True, type=click.Choice(["auto", "int8"])
)
@click.option("--threads", default=0, type=click.IntRange(min=0), help="0: every core.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def engine(model: str, profile: bool, as_json: bool, **given: Any) -> None:
    """Time the steps of an engine in this process, without server and network.

    \b
    ridgeline bench engine --profile
    ridgeline bench engine --profile --batch 16 --context 2048 --kv-cache-dtype int8
    ridgeline bench engine --profile --prompt 512
    """  # fmt: skip  # noqa: D301 - \b is click's mark for lines that stay as they are
    needs("torch", "engine")
    if given["prompt"] and (given["batch"] or given["context"]):
        raise SpecError(
            "a step computes prompts or decodes here, not both",
            where="--prompt",
            remedy="leave --batch and --context away",
        )
    found = _measured(model, given)
    if as_json:
        click.echo(json.dumps(_as_dict(found, given), indent=1))
        return
    click.echo("\n".join(lines(model, found, given["prompt"], profile=profile)))


def _measured(model: str, given: dict[str, Any]) -> "Profile":
    from ridgeline.serving.engine.cache import block_bytes
    from ridgeline.serving.engine.config import EngineConfig
    from ridgeline.serving.engine.loop import Engine
    from ridgeline.serving.engine.model import cache_dtype
    from ridgeline.serving.engine.model_files import open_model
    from ridgeline.serving.engine.step_profile import Profiler, tokens_spoken

    batch, context = given["batch"] or 16, given["context"] or 256
    steps = given["steps"] or (PROMPTS if given["prompt"] else DECODE_STEPS)
    found = click.get_current_context().with_resource(weights(model))
    architecture = open_model(found).architecture
    kept = cache_dtype(given["dtype"], given["kv_cache_dtype"])
    tokens = given["prompt"] or context + tokens_spoken(batch, context, steps)
    blocks = (1 if given["prompt"] else batch) * (tokens // 16 + 2) + 8
    if tokens > architecture.context:
        raise SpecError(
            f"{tokens:,} tokens are more than the model's context of {architecture.context:,}",
            where="--prompt" if given["prompt"] else "--context",
            remedy="a smaller one, or fewer --steps",
        )
    config = EngineConfig(
        model=found,
        dtype=given["dtype"],
        kv_cache_dtype=given["kv_cache_dtype"],
        threads=given["threads"],
        max_seqs=batch,
        max_batched_tokens=512 + batch,  # what a replica has for prompts, however many decode
        kv_cache_bytes=blocks * block_bytes(architecture, 16, kept),
        prefix_caching=False,
        cache_dir=cache_home() / "models",
    )
    profiler = Profiler(Engine(config), architecture)
    if given["prompt"]:
        return profiler.prompts(given["prompt"], steps)
    return profiler.decodes(batch, context, steps)


def lines(model: str, found: "Profile", prompt: int | None, *, profile: bool) -> list[str]:
    """The answer first, then the table that adds up to it."""
    work = found.work
    count = work.wanted if prompt else work.steps
    what = "a prompt" if prompt else "a step"
    each_ms = 1e3 * found.wall_s / count
    rate = work.rows / found.wall_s
    if prompt:
        told = f"{each_ms:.1f} ms for a prompt of {prompt:,} tokens, {rate:,.0f} prompt tokens/s"
    else:
        side = work.rows // work.steps
        told = (
            f"{each_ms:.2f} ms a step of {side} sequences at context "
            f"{work.cached / work.rows:,.0f}, {rate:,.0f} tokens/s"
        )
    timed = f"{count} {'prompts' if prompt else 'steps'} timed"
    about = f"  {model}: {found.dtype}, {found.kernels}, {found.threads} threads, {timed}"
    if not profile:
        return [told, about, "--profile shows where the time goes."]
    most = max(found.stages, key=lambda stage: stage.seconds)
    told += f"; {NOTED.get(most.name, most.name)} takes {most.seconds / found.wall_s:.0%}"
    head = f"  {'ms ' + what:22}{'ms':>9}{'share':>9}{'GB/s':>9}{'GFLOP/s':>10}"
    return [told, about, "", head, *_table(found, count)]


def _table(found: "Profile", count: int) -> list[str]:
    rows = []
    for stage in found.stages:
        rates = [_rate(stage.bytes, stage.seconds), _rate(stage.flop, stage.seconds)]
        rows.append(_row(NOTED.get(stage.name, stage.name), stage.seconds, count, found, rates))
    rows.append(_row("total", found.total_s, count, found, ["", ""]))
    rows.append(_row("wall", found.wall_s, count, found, ["", ""]))
    return [*rows, f"  {found.detail}"] if found.detail else rows


def _row(name: str, seconds: float, count: int, found: "Profile", rates: list[str]) -> str:
    share = f"{100 * seconds / found.wall_s:.1f} %"
    text = f"  {name:22}{1e3 * seconds / count:9.3f}{share:>9}{rates[0]:>9}{rates[1]:>10}"
    return text.rstrip()


def _rate(amount: float | None, seconds: float) -> str:
    return "" if amount is None or seconds <= 0 else f"{amount / seconds / 1e9:,.1f}"


def _as_dict(found: "Profile", given: dict[str, Any]) -> dict[str, Any]:
    from dataclasses import asdict

    asked = {key: value for key, value in given.items() if value is not None}
    return {"asked": asked, "total_s": found.total_s, **asdict(found)}
