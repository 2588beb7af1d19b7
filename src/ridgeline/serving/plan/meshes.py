"""TPU or GPU: the ridge of a chip, how to shard a layer over its mesh, and what else changes."""

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.physics.roofline import read_s, ridge_flop_per_byte, ridge_tokens
from ridgeline.physics.sharding import (
    gathered_weights_bytes,
    one_dimension_bytes,
    two_dimension_bytes,
)
from ridgeline.physics.size import gated_expert_params
from ridgeline.quantity import Number, Provenance, Quantity, ceil, given, holds, smallest
from ridgeline.serving.plan.splits import check_divides
from ridgeline.show import show
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic
from ridgeline.working.formula import bound

#: What each layout is called.
_LAYOUTS = {
    "one_axis": "splitting along one axis",
    "tiles_of_the_mesh": "splitting into tiles of the mesh",
    "gathered_weights": "gathering the weights",
}

#: A torus of two axes has half of its links along each; a switch gives any pair all of them.
_AXIS = ("0.5", "links of one axis of a 2D torus, over all its links")


@topic("chip-mesh", subject="serving")
def chip_mesh(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("tpu-v6e", "The chip in question."),
    reference: Accelerator = an_accelerator("h100-sxm", "The chip that people compare it with."),
    mesh_x: Number = count(4, "Chips along the axis that splits the hidden width."),
    mesh_y: Number = count(4, "Chips along the axis that splits the inner width."),
    batch_tokens: Number = amount("512", "tokens", "Tokens in one pass.", least="1"),
    dtype: str = choice("bf16", DTYPES, "Type of weights and arithmetic."),
    memory_share: Number = amount("0.9", "", "Share of memory for weights.", most="1"),
) -> Answer:
    """How to shard a model over a mesh of TPU chips, and what differs from a GPU node.

    Three layouts of a feed-forward block are compared by what they send: weights along one axis,
    weights as tiles of the mesh, and weights gathered to the tokens. Torus axes are assumed where
    the domain is no single switch.
    """
    _check_mesh(model, mesh_x, mesh_y)
    layouts = _layouts(model, accelerator, mesh_x, mesh_y, batch_tokens, dtype)
    best = smallest(**layouts)
    ridge, other = _ridge(accelerator, dtype), _ridge(reference, dtype)
    weights = model.weights_bytes(dtype)
    chips = (mesh_x * mesh_y).named("mesh_chips", "chips")
    least = ceil(weights / (memory_share * accelerator.memory_bytes)).named("least_chips", "chips")
    layout, fits = _LAYOUTS[bound(best)], holds(chips >= least)
    return Answer(
        "{accelerator} has its ridge at {ridge}, {reference} at {reference_ridge}; "
        f"on this mesh {layout} sends least: {{exchange_s}} a block"
        + ("" if fits else ". {mesh_chips} do not hold the weights, {least_chips} would"),
        {
            "ridge": ridge,
            "reference_ridge": other,
            "ridge_ratio": (ridge / other).named("ridge_ratio", "x"),
            "exchange_s": best.named("exchange_s", "us"),
            "mesh_chips": chips,
            "least_chips": least,
            "ridge_tokens": _ridge_tokens(accelerator, dtype),
        },
        table=_constraints(accelerator, reference, dtype),
        notes=(
            ", ".join(f"{_LAYOUTS[name]} {_us(time)}" for name, time in layouts.items())
            + " a block.",
            f"Each axis has to divide what it splits: {model.heads.value:g} heads and "
            f"{model.kv_heads.value:g} KV heads here; the rest is padded or replicated.",
            "Shapes are static: each new pair of batch and length compiles again, so lengths are "
            "bucketed and padded.",
            "Kernels are XLA's or Pallas's; CUDA graphs, NCCL and CUDA kernels do not carry over.",
        ),
        ok=fits,
    )


def _layouts(
    model: Model,
    accelerator: Accelerator,
    mesh_x: Number,
    mesh_y: Number,
    batch_tokens: Number,
    dtype: str,
) -> dict[str, Quantity]:
    """Seconds that each layout sends for one feed-forward block."""
    value, link = dtype_bytes(dtype), accelerator.link_bytes_per_s
    share = given(_AXIS[0], name="axis_share", provenance=Provenance.ASSUMED, source=_AXIS[1])
    axis = (link * share).named("axis_bytes_per_s")
    inner = model.expert_intermediate if model.is_moe else model.intermediate
    block = gated_expert_params(model.hidden, inner)
    tiles = two_dimension_bytes(batch_tokens, model.hidden, inner, mesh_x, mesh_y, value)
    return {
        "one_axis": read_s(one_dimension_bytes(batch_tokens, model.hidden, value), link),
        "tiles_of_the_mesh": read_s(tiles, axis),
        "gathered_weights": read_s(gathered_weights_bytes(block, value), link),
    }


def _ridge(accelerator: Accelerator, dtype: str) -> Quantity:
    found = ridge_flop_per_byte(accelerator.flop_per_s(dtype), accelerator.memory_bytes_per_s)
    return found.named(f"{accelerator.id}.ridge")


def _ridge_tokens(chip: Accelerator, dtype: str) -> Quantity:
    rate, bandwidth = chip.flop_per_s(dtype), chip.memory_bytes_per_s
    tokens = ridge_tokens(rate, bandwidth, dtype_bytes(dtype))
    return tokens.named(f"{chip.id}.ridge_tokens")


def _check_mesh(model: Model, mesh_x: Number, mesh_y: Number) -> None:
    check_divides(mesh_x, model.hidden, "mesh-x", "of hidden width")
    check_divides(mesh_y, model.heads, "mesh-y", "attention heads")


def pair_bytes_per_s(accelerator: Accelerator) -> Quantity:
    """What one device can send to one other: a torus or a mesh gives a pair only one link."""
    link = accelerator.data["interconnect"]
    for key in ("p2p_per_direction_bytes_per_s", "per_link_per_direction_bytes_per_s"):
        if link.get(key):
            return given(
                link[key],
                "B/s",
                name=f"{accelerator.id}.pair_bytes_per_s",
                provenance=Provenance.DATASHEET,
                source=f"{accelerator.name}: {link['topology']}",
            )
    return accelerator.link_bytes_per_s.named(f"{accelerator.id}.pair_bytes_per_s")


def _constraints(
    one: Accelerator, other: Accelerator, dtype: str
) -> tuple[dict[str, Quantity | str], ...]:
    """What changes from the reference to the chip, each with both numbers."""

    def row(what: str, ours: Quantity, theirs: Quantity, so: str) -> dict[str, Quantity | str]:
        ratio = (ours / theirs).named("ratio", "x")
        return {
            "constraint": what,
            one.name: ours,
            other.name: theirs,
            "ratio": ratio,
            "so": so,
        }

    rows = [
        row(
            "tokens at the ridge",
            _ridge_tokens(one, dtype),
            _ridge_tokens(other, dtype),
            "this many in a pass to be compute-bound",
        ),
        row("memory", one.memory_bytes, other.memory_bytes, "chips that the weights take"),
        row("domain", one.domain, other.domain, "how far tensor and expert parallelism reach"),
        row("all links", one.link_bytes_per_s, other.link_bytes_per_s, "collectives over all axes"),
        row("one pair", pair_bytes_per_s(one), pair_bytes_per_s(other), "moving a KV cache"),
    ]
    if "fp8" in one.data["flops_dense"] and "fp8" in other.data["flops_dense"]:
        gains = [chip.flop_per_s("fp8") / chip.flop_per_s("bf16") for chip in (one, other)]
        told = [gain.named("fp8_gain", "x") for gain in gains]
        rows.append(row("fp8 over bf16", told[0], told[1], "whether fp8 saves time or only bytes"))
    return tuple(rows)


def _us(time: Quantity) -> str:
    return show(time.named("", "us"))
