"""Which ranks share a node: every order of the axes is priced, and the best is explained."""

from dataclasses import dataclass
from itertools import permutations
from math import prod

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.fabric import link_rate_ratio
from ridgeline.physics.mapping import (
    collective_axis_s,
    members_in_node,
    neighbour_axis_s,
    repeated_bytes,
)
from ridgeline.physics.parallel import all_gather_bytes, all_reduce_bytes, message_bytes
from ridgeline.quantity import Number, Provenance, Quantity, given
from ridgeline.show import show
from ridgeline.topics import Answer, a_model, amount, an_accelerator, count, topic

#: Axes in the usual order, from neighbouring ranks outward; ties are broken in its favour.
AXES = ("tensor", "context", "pipeline", "data")
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Axes:
    """Degrees and bytes sent by one device in a step, for each axis that is wider than 1."""

    degree: dict[str, Quantity]
    sent: dict[str, Quantity]
    node_gpus: Quantity
    link: Quantity
    nic: Quantity


@dataclass(frozen=True, slots=True)
class Order:
    """One order of ranks: which axis joins neighbours, and what the step's network time is."""

    axes: tuple[str, ...]
    axis_s: dict[str, Quantity]
    step_s: Quantity

    def __str__(self) -> str:
        return ", ".join(self.axes)


def rank_orders(axes: Axes) -> list[Order]:
    """Every order whose groups tile the nodes, cheapest first; SpecError where none does."""
    node = round(axes.node_gpus.value)
    total = prod(round(degree.value) for degree in axes.degree.values())
    found = []
    for order in permutations(axes.degree):
        products = [1]
        for axis in order:
            products.append(products[-1] * round(axes.degree[axis].value))
        tiles = all(node % n == 0 or n % node == 0 for n in products)
        if total <= node or tiles:
            found.append(_priced(order, products, axes))
    if not found:
        raise SpecError(
            f"no order of ranks fills nodes of {node}",
            where="tensor-parallel",
            remedy="degrees whose products divide the node or are multiples of it",
        )
    return sorted(found, key=lambda one: (one.step_s.value, [AXES.index(a) for a in one.axes]))


def _priced(order: tuple[str, ...], products: list[int], axes: Axes) -> Order:
    each = {}
    for axis, stride in zip(order, products, strict=False):
        law = neighbour_axis_s if axis == "pipeline" else collective_axis_s
        at = given(stride, name="stride", provenance=Provenance.DEFINED, source=", ".join(order))
        members = members_in_node(at, axes.degree[axis], axes.node_gpus).named(f"{axis}_members")
        taken = law(axes.sent[axis], axes.degree[axis], members, axes.link, axes.nic)
        each[axis] = taken.named(f"{axis}_s", "ms")
    first, *others = each.values()
    return Order(order, each, sum(others, start=first).named("network_s", "ms"))


@topic("rank-mapping", subject="network")
def rank_mapping(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    tensor_parallel: Number = count(8, "Ranks that split a layer.", noun="ranks"),
    context_parallel: Number = count(1, "Ranks that split a sequence.", noun="ranks"),
    pipeline_parallel: Number = count(4, "Stages of layers.", noun="ranks"),
    data_parallel: Number = count(8, "Replicas.", noun="ranks"),
    sequence_tokens: Number = amount("8k", "tokens", "Tokens of a sequence.", least="1"),
    micro_batches: Number = count(16, "Sequences of one replica in a step."),
    node_gpus: Number = count(8, "Devices of a node.", noun="GPUs"),
    nic_bytes_per_s: Number = amount(
        "400 Gb/s", "Gb/s", "Network for each device, one direction.", least="1 Gb/s"
    ),
) -> Answer:
    """Which axis of a layout belongs inside a node, and what each other order of ranks costs.

    Network time of one training step, nothing hidden behind arithmetic: tensor ranks reduce
    activations four times a layer and micro-batch, context ranks gather keys and values, pipeline
    ranks pass activations on, data ranks reduce gradients once.
    """
    degrees = dict(
        zip(
            AXES,
            (tensor_parallel, context_parallel, pipeline_parallel, data_parallel),
            strict=True,
        )
    )
    _check(model, degrees, node_gpus)
    sent = _sent(model, degrees, sequence_tokens, micro_batches)
    wide = {axis: degree for axis, degree in degrees.items() if degree.value > 1}
    link = accelerator.link_bytes_per_s
    orders = rank_orders(Axes(wide, sent, node_gpus, link, nic_bytes_per_s))
    best, worst = orders[0], orders[-1]
    shown = orders if len(orders) <= _SHOWN else [*orders[: _SHOWN - 1], worst]
    worst_s = worst.step_s.named("worst_s")
    ratio = (worst_s / best.step_s).named("worst_ratio", "x")
    speed = link_rate_ratio(link, nic_bytes_per_s).named("link_rate_ratio", "x")
    return Answer(
        f"{best}, from neighbouring ranks outward: {{network_s}} of network a step; the worst "
        f"order ({worst}) takes {{worst_ratio}} as long",
        {
            "network_s": best.step_s,
            "worst_s": worst_s,
            "worst_ratio": ratio,
            "link_rate_ratio": speed,
            **{f"{axis}_bytes": sent[axis] for axis in wide},
            **{f"best_{axis}_s": best.axis_s[axis].named(f"best_{axis}_s") for axis in wide},
        },
        table=tuple(_row(one, best) for one in shown),
        notes=_notes(best, degrees, node_gpus, link, nic_bytes_per_s, speed),
    )


def _row(order: Order, best: Order) -> dict[str, Quantity | str]:
    return {
        "order": str(order),
        "network": order.step_s,
        "against the best": (order.step_s / best.step_s).named("against_best", "x"),
    }


def _sent(
    model: Model, degrees: dict[str, Quantity], tokens: Quantity, micro_batches: Quantity
) -> dict[str, Quantity]:
    """Bytes that one device sends on each axis in a step."""
    tensor, context, pipeline, data = degrees.values()
    layers = (model.layers / pipeline).named("stage_layers", "layers")
    activations = message_bytes(tokens / context, model.hidden).named("activation_bytes")
    keys = model.kv_bytes_per_token("bf16") / model.layers * tokens / tensor
    gradients = model.params * dtype_bytes("bf16") / (tensor * pipeline)
    gradients = gradients.named("gradient_bytes")
    sums = all_reduce_bytes(activations, tensor)
    gathers = all_gather_bytes(keys.named("layer_kv_bytes"), context)
    return {
        "tensor": repeated_bytes(
            sums, layers, micro_batches, _passes(4, "two all-reduces forward, two backward")
        ).named("tensor_bytes", "GB"),
        "context": (
            repeated_bytes(gathers, layers, micro_batches, _passes(3, "gather, gather, scatter"))
            + all_reduce_bytes(gradients, context)
        ).named("context_bytes", "GB"),
        "pipeline": (
            _passes(2, "forward and backward") * micro_batches * activations / tensor
        ).named("pipeline_bytes", "GB"),
        "data": all_reduce_bytes(gradients / context, data).named("data_bytes", "GB"),
    }


def _passes(times: int, source: str) -> Quantity:
    return given(times, name="passes", provenance=Provenance.DEFINED, source=source)


def _check(model: Model, degrees: dict[str, Quantity], node_gpus: Quantity) -> None:
    tensor = round(degrees["tensor"].value)
    if model.is_moe:
        raise SpecError(
            f"{model.name} has experts, and this topic does not map an expert axis",
            where="model",
            remedy="a dense model",
        )
    if round(model.heads.value) % tensor:
        raise SpecError(
            f"{tensor} does not divide {show(model.heads)} attention heads",
            where="tensor-parallel",
            remedy=f"a divisor of {model.heads.value:g}",
        )
    total = prod(round(degree.value) for degree in degrees.values())
    node = round(node_gpus.value)
    if total == 1:
        raise SpecError("one rank has nobody to send to", where="data-parallel", remedy="2 or more")
    if total > node and total % node:
        raise SpecError(
            f"{total} ranks do not fill nodes of {node}",
            where="data-parallel",
            remedy="degrees whose product is a multiple of the node",
        )


def _notes(
    best: Order,
    degrees: dict[str, Quantity],
    node_gpus: Quantity,
    link: Quantity,
    nic: Quantity,
    speed: Quantity,
) -> tuple[str, ...]:
    told = [
        f"Inside a node {link.value / 1e9:,.0f} GB/s, between nodes {nic.value / 1e9:,.0f} GB/s a "
        f"device, both in one direction: {show(speed)}. Often told as {2 * speed.value:,.3g}x, "
        "which divides the sum of both directions inside by one direction of the network."
    ]
    if degrees["tensor"] > node_gpus:
        told.append(
            "The tensor axis is wider than a node, so its all-reduces run at the network's rate."
        )
    elif degrees["tensor"].value > 1 and best.axes[0] != "tensor":
        told.append(f"Here {best.axes[0]} ranks send more than tensor ranks, so they go inside.")
    return tuple(told)
