"""Many variants on one base: what adapters take, what they cost a step, and when not to share."""

from dataclasses import dataclass, replace

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.architecture import CAPPED, FULL
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.adapters import (
    feed_forward_adapter_params,
    projection_adapter_params,
)
from ridgeline.physics.size import distinct_experts, weight_bytes
from ridgeline.quantity import Number, Provenance, Quantity, ceil, floor, given, largest
from ridgeline.serving.plan.decode import WEIGHT_DTYPES, Decode, an_engine
from ridgeline.serving.plan.splits import check_tensor_parallel, points
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic

# Projections that carry an adapter, of a query's size and of a key's, and the feed-forward block.
_TARGETS = {"all-linear": (2, 2, True), "attention": (2, 2, False), "query-value": (1, 1, False)}


@dataclass(frozen=True)
class Adapters:
    """So many low-rank adapters of one rank on one base."""

    model: Model
    rank: Number
    targets: str

    @property
    def params(self) -> Quantity:
        """Parameters of one adapter.

        Raises SpecError for attention whose projections are not one matrix a query, key and value.
        """
        kinds = set(self.model.layer_mix)
        if kinds - {*FULL, *CAPPED}:
            raise SpecError(
                f"adapters of {', '.join(sorted(kinds - {*FULL, *CAPPED}))} are not modelled",
                where="model",
                remedy="a model with plain or grouped heads in every layer",
            )
        queries, keys, has_block = _TARGETS[self.targets]
        model, rank = self.model, self.rank
        like_query = projection_adapter_params(rank, model.hidden, model.heads, model.head_dim)
        like_key = projection_adapter_params(rank, model.hidden, model.kv_heads, model.head_dim)
        of_query, of_key = self._matrices("query", queries), self._matrices("key", keys)
        total = model.layers * (of_query * like_query + of_key * like_key)
        if has_block:
            total = total + self._blocks()
        return total.named("adapter_params", "params")

    def _matrices(self, like: str, number: int) -> Quantity:
        name, source = f"matrices_like_{like}", f"targets={self.targets}"
        return given(number, name=name, provenance=Provenance.DEFINED, source=source)

    def _blocks(self) -> Quantity:
        """Feed-forward adapters of all layers; each expert has its own."""
        model, rank = self.model, self.rank
        if not model.is_moe:
            return model.layers * feed_forward_adapter_params(
                rank, model.hidden, model.intermediate
            )
        one = feed_forward_adapter_params(rank, model.hidden, model.expert_intermediate)
        routed = model.moe_layers * (model.experts + model.shared_experts) * one
        dense = model.layers - model.moe_layers
        return routed + dense * feed_forward_adapter_params(rank, model.hidden, model.intermediate)


@topic("adapters", subject="serving")
def adapters_topic(
    model: Model = a_model("llama-3.1-70b", "The base."),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(8, "Devices of a replica, that share the base.", noun="GPUs"),
    adapters: Number = count(50, "Variants to serve.", noun="adapters"),
    rank: Number = count(16, "Rank of each adapter."),
    targets: str = choice("all-linear", tuple(_TARGETS), "Matrices that carry an adapter."),
    batch: Number = count(32, "Sequences that decode together.", noun="sequences"),
    context_tokens: Number = amount("2k", "tokens", "Tokens that each has cached.", least="1"),
    replicas: Number = count(4, "Replicas that all traffic together needs.", noun="replicas"),
    busiest_share: Number = amount(
        "5 %", "%", "Share of the traffic of the busiest variant.", most="1"
    ),
    slowdown: Number = amount("10 %", "%", "Longer steps that are tolerated for mixing."),
    memory_share: Number = amount("0.9", "", "Share of memory for weights and cache.", most="1"),
    dtype: str = choice("bf16", WEIGHT_DTYPES, "Type of the base; native is as shipped."),
    adapter_dtype: str = choice("bf16", DTYPES, "Type of the adapters."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
    engine: str = an_engine(),
) -> Answer:
    """What many variants on one base take against a copy each, and the limits of sharing.

    Adapters are taken as split over the devices of a replica like the base.
    """
    check_tensor_parallel(model, gpus)
    decode = Decode(model, accelerator, gpus, dtype, kv_dtype, engine=engine)
    one = weight_bytes(Adapters(model, rank, targets).params, dtype_bytes(adapter_dtype))
    one = one.named("adapter_bytes")
    base = decode.weights_bytes
    every = (adapters * one).named("adapters_bytes")
    copies = (adapters * base).named("copies_bytes")
    plain = decode.work(batch, context_tokens)
    room = decode.left_bytes(memory_share) - plain.cached_bytes
    room = room.named("room_bytes", note="beside the base and the caches of the batch")
    fit = largest(fit=floor(room / one), none=0).named("adapters_that_fit", "adapters")
    mixed = distinct_experts(adapters, given(1, name="one_adapter"), batch)
    mixed = mixed.named("adapters_in_step", "adapters", note="even traffic")
    plain_s = decode.spent_s(plain).named("plain_step_s", "ms")
    with_them = (plain.read_bytes + mixed * one).named("mixed_read_bytes")
    mixed_s = decode.spent_s(replace(plain, read_bytes=with_them)).named("mixed_step_s", "ms")
    allows = slowdown * plain_s / decode.steps.weights_s(one)
    allows = allows.named("adapters_a_step_allows", "adapters")
    sticky = ceil(adapters / replicas).named("adapters_per_replica", "adapters")
    holds = max(points(fit - sticky)) >= 0
    return Answer(
        "{adapters} of rank {rank} are {adapters_bytes} against {copies_bytes} of copies on "
        "{copies_gpus}: {memory_saved} less memory; a mixed step takes {mixed_step} as long as "
        "a plain one",
        {
            "memory_saved": (copies / (base + every)).named("memory_saved", "x"),
            "adapter_bytes": one,
            "adapter_share": (one / base).named("adapter_share", "%"),
            "adapters_bytes": every,
            "copies_bytes": copies,
            "copies_gpus": (adapters * gpus).named("copies_gpus", "GPUs"),
            "mixed_step": (mixed_s / plain_s).named("mixed_step", "x"),
            "mixed_step_s": mixed_s,
            "adapters_that_fit": fit,
            "adapters_in_step": mixed,
            "adapters_a_step_allows": allows,
            "adapters_per_replica": sticky,
            "busiest_fills": (busiest_share * replicas).named("busiest_fills", "replicas"),
        },
        table=_limits(fit, allows, sticky, busiest_share * replicas),
        notes=(*_notes(busiest_share * replicas, every, room, holds), decode.told()),
        ok=holds,
    )


def _limits(
    fit: Quantity, allows: Quantity, sticky: Quantity, fills: Quantity
) -> tuple[dict[str, Quantity | str], ...]:
    """What sharing runs into, and where."""
    return (
        {"limit": "memory: adapters that fit beside base and caches", "at": fit},
        {"limit": "reads: different adapters in one step", "at": allows.named("", "adapters")},
        {"limit": "routing: adapters a replica sees when they stick", "at": sticky},
        {
            "limit": "traffic: replicas that the busiest variant fills",
            "at": fills.named("", "replicas"),
        },
    )


def _notes(fills: Quantity, every: Quantity, room: Quantity, holds: bool) -> tuple[str, ...]:
    notes = [
        "Route by adapter: a replica then holds its share of them, and a step mixes fewer.",
        "Two kinds of variant want a replica of their own: one busy enough to fill it (here the "
        f"busiest fills {max(points(fills)):.2f}), and one that is no low-rank change: another "
        "vocabulary, another base version, or a rank the engine was not started for.",
    ]
    if max(points(every)) > _FEW_BYTES:
        notes.append(
            f"That is {max(points(every)) / 1e9:,.0f} GB of adapters: `a few gigabytes` is true of "
            "rank 8 on queries and values only."
        )
    if max(points(room)) < 0:
        notes.append("The base and the caches of the batch do not fit, adapters or not.")
    elif not holds:
        notes.append("They do not all fit at once: keep the rest on the host and load on demand.")
    return tuple(notes)


# What folklore calls a few gigabytes.
_FEW_BYTES = 10e9
