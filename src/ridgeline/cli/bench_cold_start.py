"""`ridgeline bench cold-start`: how long a replica takes to start here, where, and what helps.

Exit status: 0; 1 where the stages do not add up to what was measured; 2 bad input.
"""

import json
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from ridgeline.catalog.packaged import DEFAULT_MODEL, find_model
from ridgeline.cli.extras import needs
from ridgeline.paths import cache_home

if TYPE_CHECKING:
    from ridgeline.serving.bench.cold_start import Starts
    from ridgeline.working.plan import Plan


WIDTH = 80


@click.command("cold-start")
@click.argument("model", default=DEFAULT_MODEL)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1),
              help="Starts of each kind.")  # fmt: skip
@click.option(
    "--dtype", default="bf16", show_default=True, type=click.Choice(["bf16", "fp32", "int8"])
)
@click.option("--threads", default=0, type=click.IntRange(min=0), help="0: every core.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.pass_context
def cold_start(
    ctx: click.Context, model: str, rounds: int, dtype: str, threads: int, as_json: bool
) -> None:
    """Start a replica of MODEL again and again, cold and warm, and say where the time goes.

    \b
    cold   nothing converted yet, nothing of model and libraries in memory
    lazy   converted weights on the disk, nothing in memory, not read ahead
    kept   the same, read ahead while the process imports (always, but here)
    warm   converted weights on the disk and in memory, as at a restart
    spare  as warm, by a process that has imported all and waits

    The stages stand beside the whole as measured from outside, and beside `plan cold-start`.
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    needs("torch", "engine")
    needs("aiohttp", "engine")
    from ridgeline.serving.bench.cold_start import measure

    found = measure(
        find_model(model),
        ["--dtype", dtype, "--threads", str(threads)],
        rounds,
        cache_home(),
        lambda kind, start: click.echo(f"{kind:5}{start.whole_s:7.2f} s", err=True),
    )
    planned = plan_of(found)
    text = json.dumps(as_dict(found, planned), indent=1) if as_json else None
    click.echo(text or "\n".join(lines(model, found, planned)))
    ctx.exit(0 if found.add_up else 1)


def plan_of(found: "Starts") -> "Plan":
    """`plan cold-start` with this machine's terms: what a start from the disk should take.

    The disk's speed is measured by reading the weights; all else is a warm start's.
    """
    import ridgeline
    from ridgeline.serving.bench.cold_start import WARM
    from ridgeline.serving.control.start_stages import Timeline

    stages = {stage: found.stage_s(WARM, stage) for stage in found.stages()}
    warm = Timeline(stages, found.whole_s(WARM)).planned_s()
    return ridgeline.plan(
        "cold-start",
        model=DEFAULT_MODEL,
        gpus=1,
        source="disk",
        disk_bytes_per_s=f"{found.disk_bytes_per_s} B/s",
        init_s=f"{warm['init']} s",
        warm_up_s=f"{warm['warm_up']} s",
        cached_warm_up_s=f"{warm['warm_up']} s",
        graphs_s="0 s",
        set={"weights_bytes": f"{found.weights_bytes} B", "host_hop_s": f"{warm['load']} s"},
    )


def lines(model: str, found: "Starts", planned: "Plan") -> list[str]:
    """The answer, the stages beside the whole, what to fix and what that saves, the plan."""
    from ridgeline.serving.bench.cold_start import WARM
    from ridgeline.serving.control.start_stages import Timeline, fix

    kinds = list(found.starts)
    others = ", ".join(f"{kind} {found.whole_s(kind):.2f} s" for kind in kinds if kind != WARM)
    about = found.about
    stages = {stage: found.stage_s(WARM, stage) for stage in found.stages()}
    first = fix(Timeline(stages, found.whole_s(WARM)))
    assert first is not None, "a start takes time"
    count = len(found.starts[WARM])
    return [
        *wrap(
            f"warm {found.whole_s(WARM):.2f} s, {100 * first.share:.0f} % of it {first.stage}; "
            f"{others}",
            WIDTH,
        ),
        *_indented(
            f"{model}: {about['dtype']}, {about['kernels']}, {found.weights_bytes / 1e6:,.0f} MB "
            f"of weights, median of {count} each"
        ),
        "",
        *_table(found, kinds),
        "",
        *wrap(f"Fix first: {first.stage}. {first.how[0].upper()}{first.how[1:]}.", WIDTH),
        "",
        f"  {'what shortens a start here':52}{'saves':>9}",
        *(f"  {what:52}{saved_s:7.2f} s" for what, saved_s in savings(found)),
        "",
        *_beside(found, planned),
    ]


def _indented(text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")


def _table(found: "Starts", kinds: list[str]) -> list[str]:
    head = f"  {'seconds':14}" + "".join(f"{kind:>9}" for kind in kinds)
    rows = [
        f"  {stage:14}" + "".join(f"{found.stage_s(kind, stage):9.2f}" for kind in kinds)
        for stage in found.stages()
    ]
    sums = [found.sum_s(kind) for kind in kinds]
    wholes = [found.whole_s(kind) for kind in kinds]
    yes = "each sum within 10 % of its start" if found.add_up else "stages are missing"
    return [
        head,
        *rows,
        f"  {'sum':14}" + "".join(f"{total:9.2f}" for total in sums),
        f"  {'measured':14}" + "".join(f"{whole:9.2f}" for whole in wholes),
        f"  {yes} (the worst: {found.worst_share:.1%})",
    ]


def savings(found: "Starts") -> list[tuple[str, float]]:
    """What each lever saves here, as measured; of one that does not help, nought or less."""
    from ridgeline.serving.bench.cold_start import COLD, KEPT, LAZY, SPARE, WARM

    rows = [("weights read ahead, beside the import", found.whole_s(LAZY) - found.whole_s(KEPT))]
    if COLD in found.starts:
        rows.insert(0, ("converted weights kept", found.whole_s(COLD) - found.whole_s(KEPT)))
    rows.append(("model and libraries in memory", found.whole_s(KEPT) - found.whole_s(WARM)))
    if SPARE in found.starts:
        waits_s = found.whole_s(WARM) - found.whole_s(SPARE)
        rows.append(("a process that waits with all imported", waits_s))
    return rows


def _beside(found: "Starts", planned: "Plan") -> list[str]:
    """The plan of a start from the disk, and what it took."""
    from ridgeline.serving.bench.cold_start import LAZY
    from ridgeline.serving.engine.read_ahead import THREADS

    start_s, whole_s = planned["start_s"].value, found.whole_s(LAZY)
    one, many = found.disk_bytes_per_s / 1e9, found.threaded_bytes_per_s / 1e9
    told = [
        f"plan cold-start: {start_s:.2f} s, measured (lazy) {whole_s:.2f} s: "
        f"{whole_s / start_s:.2f} of the plan",
        *_indented(planned.says),
        f"  The disk reads {one:.2f} GB/s by one thread, {many:.2f} GB/s by {THREADS}.",
    ]
    if not found.is_dropped:
        left = "an unknown share" if found.left_share is None else f"{found.left_share:.0%}"
        told.append(f"  {left} of the weights stayed in memory: this was not the disk's speed.")
    return told


def as_dict(found: "Starts", planned: "Plan") -> dict[str, Any]:
    """The same as JSON."""
    return {
        "weights_bytes": found.weights_bytes,
        "disk_bytes_per_s": found.disk_bytes_per_s,
        "threaded_bytes_per_s": found.threaded_bytes_per_s,
        "left_in_memory_share": found.left_share,
        "engine": {name: found.about.get(name) for name in ("dtype", "threads", "kernels")},
        "starts": {
            kind: [
                {"start_s": one.whole_s, "sum_s": one.sum_s, "stages_s": dict(one.stages_s)}
                for one in runs
            ]
            for kind, runs in found.starts.items()
        },
        "median_s": {kind: found.whole_s(kind) for kind in found.starts},
        "add_up": found.add_up,
        "saves_s": dict(savings(found)),
        "planned_s": planned["start_s"].value,
    }
