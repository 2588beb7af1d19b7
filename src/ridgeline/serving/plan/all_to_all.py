"""All-to-alls of an MoE's decode step: how many, how many bytes, and how long on which link."""

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.latency_chain import collective_count
from ridgeline.physics.parallel import exchange_bytes_per_token
from ridgeline.physics.roofline import read_s
from ridgeline.physics.size import distinct_experts
from ridgeline.quantity import Number, Quantity, ceil, largest, smallest
from ridgeline.serving.plan.splits import check_divides
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic


@topic("moe-all-to-all", subject="serving")
def moe_all_to_all(
    model: Model = a_model("deepseek-v3"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    expert_parallel: Number = count(64, "Devices that the experts lie on.", noun="GPUs"),
    tokens: Number = amount("64", "tokens", "Tokens of one device in a step.", least="1"),
    exchange_s: Number = amount(
        "20us", "s", "Latency of one exchange, bytes apart.", interval=("10us", "60us")
    ),
    dispatch_dtype: str = choice("fp8", DTYPES, "Type in which tokens go to their experts."),
    combine_dtype: str = choice("bf16", DTYPES, "Type in which they come back."),
) -> Answer:
    """What the all-to-alls of one MoE decode step take, within a fast domain and beyond it.

    Experts are visited evenly. Over the network a token goes once to each node it visits and is
    passed on inside; within a domain it goes to each expert.
    """
    if not model.is_moe:
        raise SpecError(f"{model.name} is dense", where="model", remedy="a mixture of experts")
    check_divides(expert_parallel, model.experts, "expert-parallel", "experts")
    dispatch, combine = dtype_bytes(dispatch_dtype), dtype_bytes(combine_dtype)
    each = exchange_bytes_per_token(1, model.hidden, dispatch, combine)
    visit = (model.moe_layers * tokens * each).named("visit_bytes", "MB", note="one away from home")
    collectives = collective_count(model.moe_layers).named("collectives", "collectives")
    floor = (collectives * exchange_s).named("latency_floor_s", "ms")
    inside = smallest(devices=expert_parallel, domain=accelerator.domain)
    domains = ceil(expert_parallel / accelerator.domain).named("domains")
    nodes = distinct_experts(domains, 1, model.top_k).named("visited_domains", note="drawn evenly")
    hops = {
        "within the domain": (inside, accelerator.link_bytes_per_s, model.top_k),
        "between domains": (domains, accelerator.nic_bytes_per_s, nodes),
    }
    rows = [_link(name, *hop, visit, floor) for name, hop in hops.items()]
    alone = (expert_parallel, accelerator.link_bytes_per_s, model.top_k)
    one_domain = _link("all in one domain", *alone, visit, floor)
    step = largest(domain=_time(rows[0]), network=_time(rows[1])).named("exchanges_s", "ms")
    return Answer(
        "{collectives} a step set a floor of {floor_s} at {exchange_s} each; with bytes on these "
        "links a step exchanges for {exchanges_s}, in one domain for {one_domain_s}",
        {
            "floor_s": floor,
            "collectives": collectives,
            "exchanges_s": step,
            "one_domain_s": _time(one_domain).named("one_domain_s", "ms"),
            "bytes_per_step": _bytes(rows),
            "domain_gain": (step / _time(one_domain)).named("domain_gain", "x"),
        },
        table=(*rows, one_domain),
        notes=(
            "Overlapping two half batches hides the exchange of one behind the other's arithmetic, "
            "and doubles the collectives.",
            "An even spread is the best case: the most visited expert's device is waited for.",
        ),
    )


def _link(
    name: str,
    places: Number,
    rate: Quantity,
    visits: Number,
    visit: Quantity,
    floor: Quantity,
) -> dict[str, Quantity | str]:
    """One kind of link: bytes that a device sends over it in a step, and the time with latency."""
    away = (visits * (1 - 1 / places)).named("visits_elsewhere", note="the rest stays at home")
    word = name.replace(" ", "_")
    sent = (away * visit).named(f"{word}_bytes", "MB")
    carried = read_s(sent, rate)
    return {
        "link": name,
        "rate": rate,
        "sent": sent,
        "carrying": carried.named(f"{word}_carrying_s", "ms"),
        "with latency": (floor + carried).named(f"{word}_s", "ms"),
    }


def _time(row: dict[str, Quantity | str]) -> Quantity:
    time = row["with latency"]
    assert isinstance(time, Quantity), time
    return time


def _bytes(rows: list[dict[str, Quantity | str]]) -> Quantity:
    first, second = rows[0]["sent"], rows[1]["sent"]
    assert isinstance(first, Quantity)
    assert isinstance(second, Quantity)
    return (first + second).named("step_bytes", "MB")
