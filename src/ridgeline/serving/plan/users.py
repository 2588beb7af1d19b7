"""How many users with full contexts fit on nodes, and what stops the next one."""

from dataclasses import replace

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.quantity import Number, Quantity, ceil, choose, floor, given, smallest
from ridgeline.serving.plan.closed_loop import ClosedLoop, closed_loop
from ridgeline.serving.plan.decode import WEIGHT_DTYPES, Decode, an_engine, one_token
from ridgeline.serving.plan.splits import check_divides, check_tensor_parallel, points, splits
from ridgeline.show import show
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic
from ridgeline.working.formula import bound

# What the table compares: weights and cache.
_PRECISIONS = (("bf16", "bf16"), ("bf16", "fp8"), ("fp8", "bf16"), ("fp8", "fp8"), ("int4", "fp8"))
_SPLITS = 32


@topic("users-per-node", subject="serving")
def users_per_node(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(8, "Devices of a node.", noun="GPUs"),
    tensor_parallel: Number = count(
        0, "Devices that share one copy of the weights; 0 is all of a node.", least=0
    ),
    attention: str = choice(
        "tensor", ("tensor", "data"), "What attention is split over: heads, or sequences."
    ),
    users: Number = count(1000, "Users to serve at once.", noun="users"),
    context_tokens: Number = amount("8k", "tokens", "Tokens that each user holds.", least="1"),
    user_tokens_per_s: Number = amount(
        "20 tokens/s", "tokens/s", "Rate that each user has to get.", least="0.001 tokens/s"
    ),
    headroom: Number = amount(
        "20 %", "%", "Share of the users a node holds, kept free.", most="99 %"
    ),
    memory_share: Number = amount("0.9", "", "Share of memory the engine may take.", most="1"),
    reserved_bytes: Number = amount(
        "0 GB",
        "B",
        "Of that, what each device needs beside weights and cache (engine-memory has the lines).",
    ),
    roofline_share: Number = amount(
        "0.7",
        "",
        "Share of bandwidth and peak that decode attains under the roofline.",
        least="0.01",
        most="1",
        interval=("0.5", "0.9"),
        source="assumed; decode matrix products alone reach 0.86 of an H100's bandwidth",
    ),
    dtype: str = choice("bf16", WEIGHT_DTYPES, "Type of the weights; native is as shipped."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
    engine: str = an_engine(),
    answer_share: Number = amount(
        "12.5 %",
        "%",
        "Share of a context that is answer, for `with_prompts`; the rest came as a prompt.",
        least="0.1 %",
        most="99.9 %",
        source="assumed: 7k of prompt and 1k of answer in 8k",
    ),
) -> Answer:
    """How many users with full contexts a node holds, what binds, how many nodes it takes.

    The users are those whose caches fit and whose tokens are in time while nobody prefills.
    `with_prompts` counts what the prompts of the others take, by the fitted step-time model.
    """
    split = choose(tensor_parallel > 0, tensor_parallel, gpus, why="a split is given")
    split = split.named("gpus_per_copy", "GPUs")
    check_tensor_parallel(model, split)
    check_divides(split, gpus, "tensor-parallel", "GPUs of a node")
    decode = Decode(
        model,
        accelerator,
        split,
        dtype,
        kv_dtype,
        roofline_share,
        roofline_share,
        whole_cache=attention == "data",
        engine=engine,
    )
    per_user = decode.sequence_bytes(context_tokens).named("per_user_bytes")
    left = _left(decode, memory_share, reserved_bytes)
    limits = {
        "memory": _by_memory(decode, left, context_tokens),
        "bandwidth": _by_bandwidth(decode, user_tokens_per_s, context_tokens),
        "compute": _by_compute(decode, user_tokens_per_s, context_tokens),
    }
    copy = smallest(**limits).named("users_per_copy", "users")
    fit = (copy * gpus / split).named("users_per_node", "users")
    kept = floor(fit * (1 - headroom)).named("users_per_node_with_headroom", "users")
    values = {
        "users_per_node": fit,
        "nodes": _nodes(users, kept).named("nodes", "nodes"),
        "nodes_before_headroom": _nodes(users, fit).named("nodes_before_headroom", "nodes"),
        "users_per_node_with_headroom": kept,
        "per_user_bytes": per_user,
        "left_bytes": left,
        **{f"users_by_{what}": most for what, most in limits.items()},
    }
    loop = closed_loop(decode, context_tokens, answer_share, user_tokens_per_s)
    if loop is not None:
        values |= _with_prompts(loop.values(copy, gpus / split), users, headroom)
    can = max(points(kept)) > 0
    if not can:
        del values["nodes"], values["nodes_before_headroom"]
    return Answer(
        f"{{users_per_node}} with {{context_tokens}} each on one node of {{gpus}}; {_binds(copy)}. "
        + (_for_all(values) if can else _nobody(fit)),
        values,
        table=_table(decode, context_tokens, memory_share, reserved_bytes),
        notes=(*_prompts(loop, values, copy), *_notes(decode, copy)),
        ok=can,
    )


def _with_prompts(
    values: dict[str, Quantity], users: Number, headroom: Number
) -> dict[str, Quantity]:
    """What a closed loop gives, and the nodes that keep the rate in it; none where none do."""
    held = floor(values["users_with_prompts"] * (1 - headroom))
    if max(points(held)) <= 0:
        return values
    nodes = _nodes(users, held).named("nodes_with_prompts", "nodes")
    return values | {"nodes_with_prompts": nodes}


def _for_all(values: dict[str, Quantity]) -> str:
    with_prompts = ", {nodes_with_prompts} where prompts are counted"
    said = "{nodes} for {users} with {headroom} kept free"
    return said + (with_prompts if "nodes_with_prompts" in values else "")


def _prompts(
    loop: ClosedLoop | None, values: dict[str, Quantity], copy: Quantity
) -> tuple[str, ...]:
    """What prompts take of the rate, in words, and the topic that has more of it."""
    if loop is None:
        return (
            "Prompts are not counted: no steps are fitted to such a split or device. While one "
            "user's prompt is read the others wait, so each gets less than said.",
        )
    told = [values[name] for name in ("tokens_per_s_with_prompts", "users_with_prompts")]
    if any(len(points(one)) > 1 for one in told):
        return ()  # a sweep: each point would have its own
    rate, keep = (show(one) for one in told)
    nodes = values.get("nodes_with_prompts")
    need = f", which takes {show(nodes)}" if nodes is not None else ""
    return (
        "While the others' prompts are read a user waits: on a full node whose users go on asking "
        f"each gets {rate} by the fitted steps, and {keep} would keep the rate{need}. With its "
        f"interval: {loop.command(copy)}",
    )


def _nobody(fit: Quantity) -> str:
    if max(points(fit)) > 0:
        return "With {headroom} kept free that is nobody"
    return "A node holds nobody, so no number of them helps"


def _left(decode: Decode, memory_share: Number, reserved_bytes: Number) -> Quantity:
    """Room for the cache beside one copy of the weights, on all its devices."""
    usable = decode.usable_bytes(memory_share)
    reserved = (decode.devices * reserved_bytes).named("reserved_on_copy_bytes")
    left = usable - decode.weights_bytes - reserved
    return left.named("left_bytes", note="for the cache")


def _by_memory(decode: Decode, left: Quantity, context: Number) -> Quantity:
    return decode.sequences_that_fit(left, context).named("users_by_memory", "users")


def _by_bandwidth(decode: Decode, rate: Number, context: Number) -> Quantity:
    """Users whose caches and the weights can be read in the time of a token."""
    limit = (one_token() / rate).named("token_s")
    return decode.batch_by_reads(limit, context).named("users_by_bandwidth", "users")


def _by_compute(decode: Decode, rate: Number, context: Number) -> Quantity:
    """Users whose tokens can be computed in the time of one."""
    limit = (one_token() / rate).named("token_s")
    return decode.batch_by_arithmetic(limit, context).named("users_by_compute", "users")


def _nodes(users: Number, fit: Quantity) -> Quantity:
    """Nodes for so many users; unlimited where a node holds none."""
    some = choose(fit > 0, fit, given(1, name="one_user"), why="a node holds any")
    return choose(fit > 0, ceil(users / some), float("inf"), why="a node holds any")


def _binds(copy: Quantity) -> str:
    return f"{bound(copy)} binds"


def _table(
    decode: Decode, context: Number, memory_share: Number, reserved: Number
) -> tuple[dict[str, Quantity | str], ...]:
    """What memory holds in other precisions, and with the weights split further."""
    here = (decode.dtype, decode.kv_dtype)
    asked = [(kinds, decode.devices) for kinds in dict.fromkeys((here, *_PRECISIONS))]
    asked += [(here, given(parts, "GPUs")) for parts in splits(decode.model, _SPLITS)]
    rows: list[dict[str, Quantity | str]] = []
    for (dtype, kv_dtype), devices in asked:
        other = replace(decode, dtype=dtype, kv_dtype=kv_dtype, devices=devices)
        if not _runs(other):
            continue
        left, one = _left(other, memory_share, reserved), other.sequence_bytes(context)
        fit = _by_memory(other, left, context)
        rows.append(
            {
                "weights": dtype,
                "cache": kv_dtype,
                "split": devices,
                "of a user on a GPU": one / devices,
                "users": fit,
                "per GPU": (fit / devices).named("users_per_gpu", "users"),
            }
        )
    return tuple(rows)


def _runs(decode: Decode) -> bool:
    """Whether the device has arithmetic for the weights' type; the table leaves others out."""
    return decode.dtype == "native" or decode.accelerator.multiplies(decode.dtype)


def _notes(decode: Decode, copy: Quantity) -> tuple[str, ...]:
    notes = []
    heads, model = int(decode.model.kv_heads.value), decode.model
    if "kv_lora_rank" in model.attention and not decode.whole_cache:
        notes.append(
            "A latent cache serves all heads, so every device of the split keeps all of it; "
            "attention=data spreads sequences instead, at the price of whole attention weights."
        )
    elif not decode.whole_cache:
        notes.append(
            f"Past {heads} KV heads more splitting takes nothing off the cache per user and "
            "device: heads are replicated, and only the weights shrink."
        )
    if max(points(decode.accelerator.memory_bytes)) % 1e9:
        notes.append(
            "Sizing by hand takes 80e9 bytes a card or so; the driver reports other numbers, and "
            "those are taken here. --set memory_bytes=80GB gives the usual answer."
        )
    if bound(copy) != "memory":
        notes.append("Not memory but the rate each user wants binds: more memory would add none.")
    notes.append(decode.told())
    return tuple(notes)
