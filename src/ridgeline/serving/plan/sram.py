"""Accelerators whose only memory is on the chip: how many a replica takes, and at what cost."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.roofline import read_s
from ridgeline.quantity import Number, Quantity, ceil, given, smallest
from ridgeline.serving.plan.decode import Decode
from ridgeline.topics import (
    DTYPES,
    Answer,
    a_model,
    amount,
    an_accelerator,
    choice,
    count,
    numbers,
    topic,
)


@topic("sram-only", subject="serving")
def sram_only(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("groq-lpu-v1"),
    dtype: str = choice("int8", DTYPES, "Type of the weights as stored."),
    kv_dtype: str = choice("fp8", DTYPES, "Type of the cache."),
    context_tokens: Number = amount("4k", "tokens", "Tokens that each request holds.", least="1"),
    requests: Number = count(1, "Requests in flight at once.", noun="requests"),
    tensor_parallel: Number = count(8, "Chips that share a layer.", noun="chips"),
    hop_s: Number = amount("1us", "s", "From one stage to the next."),
    price_usd_per_s: Number = amount("0.50USD/h", "USD/s", "Price of one chip an hour, assumed."),
    utilizations: tuple[Quantity, ...] = numbers("0.1,0.5,1", "", "Shares of time in use."),
) -> Answer:
    """How many SRAM-only chips hold a model, its batch-1 step, and what a token costs by load.

    Layers are stages of a pipeline, each on a few chips; a token passes all of them, and as many
    requests as there are stages keep them all busy.
    """
    _check_sram(accelerator)
    chain = Decode(model, accelerator, tensor_parallel, dtype, kv_dtype, whole_cache=True)
    weights = chain.weights_bytes
    bare = ceil(weights / accelerator.sram_bytes).named("chips_for_weights", "chips")
    cache = (requests * model.cache_bytes(context_tokens, kv_dtype)).named("cached_bytes")
    chips = ceil((weights + cache) / accelerator.sram_bytes).named("chips", "chips")
    stages = ceil(chips / tensor_parallel).named("stages", "stages")
    one = given(1, "sequences", name="one_request")
    read = read_s(chain.read_bytes(one) + chain.sequence_bytes(context_tokens), chain.bytes_per_s)
    step = (read + stages * hop_s).named("step_s", "us")
    busy = smallest(stages=stages, requests=requests)
    rate = (busy / step).named("tokens_per_s_at_full_load", "1/s")
    price = (chips * price_usd_per_s).named("replica_price_usd_per_s", "USD/h")
    costs = [_cost(price, rate, share) for share in utilizations]
    return Answer(
        "{model} in {dtype} takes {chips_for_weights} of {accelerator} for its weights alone and "
        "{chips} with the caches of {requests}; a batch-1 step takes {step_s}",
        {
            "chips_for_weights": bare,
            "chips": chips,
            "step_s": step,
            "stages": stages,
            "tokens_per_s": rate,
            "usd_per_million_tokens": costs[-1],
        },
        table=tuple(
            {"in use": share.named("in_use", "%"), "a million tokens": cost}
            for share, cost in zip(utilizations, costs, strict=True)
        ),
        notes=(
            "One request leaves all stages but one idle; a cost per token at full load needs as "
            "many requests as stages, and the SRAM for their caches.",
            "The price of a chip is an assumption: set your own.",
        ),
    )


def _check_sram(accelerator: Accelerator) -> None:
    """Raise SpecError where the chip has other memory for weights: reads run at that one's rate."""
    sram = accelerator.data.get("on_chip_sram_bytes") or 0
    if accelerator.data["memory"]["bytes"] > sram:
        raise SpecError(
            f"{accelerator.name} has memory besides its SRAM",
            where="accelerator",
            remedy="groq-lpu-v1 or cerebras-wse3; users-per-node is for the others",
        )


def _cost(price: Quantity, rate: Quantity, share: Quantity) -> Quantity:
    million = 1e6  # tokens, as prices are quoted
    cost = million * price / (rate * share)
    return cost.named("usd_per_million_tokens", "USD")
