"""A replica's cold start as a timeline: which hop is critical, what to fix, and the floor."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.roofline import read_s
from ridgeline.quantity import Number, Quantity, largest, smallest
from ridgeline.show import show
from ridgeline.topics import (
    DTYPES,
    Answer,
    a_model,
    amount,
    an_accelerator,
    choice,
    count,
    flag,
    topic,
)
from ridgeline.working.formula import bound

#: From far to near: reading from one means passing all after it.
_SOURCES = ("object-store", "disk", "host")
#: One hop nearer.
_NEXT = {"object-store": "disk", "disk": "host", "host": "host"}

#: What shortens each stage.
_FIXES = {
    "init": "load weights while the process initialises",
    "load": "keep the weights one hop nearer",
    "direct": "stream the weights from their source straight to device memory",
    "warm_up": "keep compiled code between starts",
    "graphs": "capture graphs after the first answer",
}


@topic("cold-start", subject="serving")
def cold_start(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(8, "Devices that the weights go to.", noun="GPUs"),
    dtype: str = choice("bf16", DTYPES, "Type of the weights as stored."),
    source: str = choice("disk", _SOURCES, "Where the weights are when the start begins."),
    store_bytes_per_s: Number = amount("1GB/s", "B/s", "From the object store to this node."),
    disk_bytes_per_s: Number = amount("7GB/s", "B/s", "Sequential read of the local disk."),
    init_s: Number = amount("10s", "s", "Process, CUDA contexts, communicators."),
    warm_up_s: Number = amount("20s", "s", "Compilation and the profiling run."),
    cached_warm_up_s: Number = amount("5s", "s", "The same with compiled code kept."),
    graphs_s: Number = amount("15s", "s", "Capture of CUDA graphs."),
    is_streamed: bool = flag(False, "Whether hops overlap instead of following each other."),
    is_direct: bool = flag(
        False, "Whether weights stream from their source straight to device memory, past disks."
    ),
    is_parallel: bool = flag(False, "Whether weights load while the process initialises."),
) -> Answer:
    """How long a replica takes to start, which hop is critical, and what a good path reaches.

    Stages follow each other unless said otherwise. The floor has the weights in host memory, their
    load behind the initialisation, compiled code kept, and graphs captured after the first answer.
    """
    weights = model.weights_bytes(dtype)
    hops = _hops(weights, gpus * accelerator.host_bytes_per_s, store_bytes_per_s, disk_bytes_per_s)
    used = _passed(hops, source, is_direct)
    slowest = _slowest(used)
    load, nearer, from_store = (
        _load_s(hops, one, is_streamed=is_streamed, is_direct=is_direct).named(f"{name}_s", "s")
        for one, name in (
            (source, "load"), (_NEXT[source], "nearer_load"), (_SOURCES[0], "from_store")
        )
    )  # fmt: skip
    stages = {"init": init_s, "load": load, "warm_up": warm_up_s, "graphs": graphs_s}
    beside = smallest(init=init_s, load=load)
    nearer = smallest(as_is=load, nearer=nearer)
    direct = _load_s(hops, source, is_streamed=True, is_direct=True)
    streamed = smallest(as_is=load, direct=direct).named("direct_load_s", "s")
    front, front_nearer, front_direct = (
        largest(init=init_s, load=one) if is_parallel else init_s + one
        for one in (load, nearer, streamed)
    )
    saves = {
        "init": 0 * init_s if is_parallel else beside,
        "load": front - front_nearer,
        "direct": (front - front_direct).named("direct_saves_s", "s"),
        "warm_up": largest(kept=warm_up_s - cached_warm_up_s, none=0 * warm_up_s),
        "graphs": graphs_s,
    }
    ready = front + warm_up_s + graphs_s
    floor = largest(init=init_s, load=hops["host"]) + cached_warm_up_s
    critical, first = bound(largest(**stages)), bound(largest(**saves))
    return Answer(
        "{weights_bytes} of weights take {start_s} to start from cold; the longest stage is "
        f"{critical.replace('_', ' ')}, the slowest hop the {bound(slowest).replace('_', ' ')}. "
        f"Fix first: {_FIXES.get(first, first)}",
        {
            "start_s": ready.named("start_s", "s"),
            "load_s": load,
            "slowest_hop_s": slowest.named("slowest_hop_s", "s"),
            "floor_s": floor.named("floor_s", "s"),
            "direct_load_s": streamed,
            "direct_saves_s": saves["direct"],
            "from_store_s": from_store,
            "best_saving_s": largest(**saves).named("best_saving_s", "s"),
            "weights_bytes": weights,
        },
        table=_timeline(stages, saves, front, is_parallel=is_parallel),
        notes=_notes(used, saves, overlaps=is_streamed or is_direct),
    )


def _notes(
    used: dict[str, Quantity], saves: dict[str, Quantity], *, overlaps: bool
) -> tuple[str, ...]:
    """The path, what would shorten it, and what is not counted."""
    return (
        f"Hops: {', '.join(f'{hop} {show(time)}' for hop, time in used.items())}, "
        f"{'overlapped' if overlaps else 'one after the other'}.",
        f"Fixes of the load: {_FIXES['load']} saves {show(saves['load'])}; {_FIXES['direct']}, "
        f"only a buffer in host memory between, saves {show(saves['direct'])} (--is-direct).",
        "A node that has to boot, or an image that has to be pulled, comes before all of this.",
    )


def _hops(weights: Quantity, host: Number, store: Number, disk: Number) -> dict[str, Quantity]:
    rates = {"object-store": store, "disk": disk, "host": host.named("host_links_bytes_per_s")}
    return {
        hop: read_s(weights, rate).named(f"{hop.replace('-', '_')}_hop_s", "s")
        for hop, rate in rates.items()
    }


def _passed(hops: dict[str, Quantity], source: str, is_direct: bool) -> dict[str, Quantity]:
    """The hops from a source to the devices; a direct stream passes no disk in between."""
    path = (source, "host") if is_direct else _SOURCES[_SOURCES.index(source) :]
    return {hop: hops[hop] for hop in dict.fromkeys(path)}


def _slowest(hops: dict[str, Quantity]) -> Quantity:
    """The hop that a stream waits for."""
    return largest(**{hop.replace("-", "_"): time for hop, time in hops.items()})


def _load_s(
    hops: dict[str, Quantity], source: str, *, is_streamed: bool, is_direct: bool
) -> Quantity:
    """Weights from a source to the devices: the slowest hop of a stream, all hops of copies."""
    used = _passed(hops, source, is_direct)
    return _slowest(used) if is_streamed or is_direct else _total(list(used.values()))


def _total(times: list[Quantity]) -> Quantity:
    total = times[0]
    for time in times[1:]:
        total = total + time
    return total


def _timeline(
    stages: dict[str, Quantity], saves: dict[str, Quantity], front: Quantity, *, is_parallel: bool
) -> tuple[dict[str, Quantity | str], ...]:
    """Each stage with its begin, and what its fix is worth."""
    at_once = 0 * stages["init"]
    begins = {
        "init": at_once,
        "load": at_once if is_parallel else stages["init"],
        "warm_up": front,
        "graphs": front + stages["warm_up"],
    }
    return tuple(
        {
            "stage": stage.replace("_", " "),
            "begins": begins[stage].named(f"{stage}_begins_s", "s"),
            "takes": time.named(f"{stage}_takes_s", "s"),
            "fix": _FIXES[stage],
            "saves": saves[stage].named(f"{stage}_saves_s", "s"),
        }
        for stage, time in stages.items()
    )
