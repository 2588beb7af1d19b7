"""What a request costs: spend over requests, the floor of a busy fleet, and the gap between."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.quantity import Number, holds, smallest
from ridgeline.topics import Answer, amount, an_accelerator, count, topic


@topic("cost-per-request", subject="cost")
def cost_per_request(
    replicas: Number = count(4, "Replicas that are paid for.", noun="replicas"),
    accelerator: Accelerator = an_accelerator("h100-sxm", "Accelerator of the replicas."),
    gpus: Number = count(1, "Devices of a replica.", noun="GPUs"),
    price: Number = amount("0 USD/h", "USD/h", "Price of a device; 0 takes the catalog's."),
    period_s: Number = amount("24h", "h", "Time that the bill covers.", least="1s"),
    requests: Number = amount("360000", "requests", "Requests answered in it.", least="1"),
    replica_rate: Number = amount(
        "5 requests/s", "requests/s", "Requests a busy replica answers.", least="0.001 requests/s"
    ),
    per: Number = amount("1000", "requests", "Requests that a price is told for.", least="1"),
) -> Answer:
    """Actual cost of a thousand requests, the floor when fully busy, and what idle time costs."""
    each = accelerator.price_or(price)
    replica = (each * gpus).named("replica_price", "USD/h")
    spend = (replicas * replica * period_s).named("spend", "USD")
    possible = (replicas * replica_rate * period_s).named("possible_requests", "requests")
    busy = (requests / possible).named("utilisation", "%")
    floor = (replica / replica_rate * per).named("floor", "USD")
    actual = (spend / requests * per).named("actual", "USD")
    enough = holds(busy <= 1)
    return Answer(
        "{replicas} cannot answer {requests} in {period_s}: they would be {utilisation} busy"
        if not enough
        else "{actual} for {per} against a floor of {floor}: the fleet is {utilisation} busy",
        {
            "actual": actual,
            "floor": floor,
            "utilisation": busy,
            "spend": spend,
            "idle_spend": (spend * (1 - smallest(busy=busy, all=1))).named("idle_spend", "USD"),
            "idle_gap": (actual / floor).named("idle_gap", "x"),
            "replica_per_hour": replica_rate.named("replica_per_hour", "requests/h"),
            "replica_price": replica,
        },
        notes=(
            accelerator.price_note(price),
            "the floor is what a fully busy replica costs; the gap to it is idle time, which "
            "autoscaling, sharing and batch work fill, not cheaper cards",
        ),
        ok=enough,
    )
