"""Whether a replica should stop when nobody asks: below which rate, and who waits for it."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.physics.startup import (
    held_at_most,
    held_s,
    stopped_share,
    zero_break_even_hz,
)
from ridgeline.quantity import Number, ceil, holds, largest
from ridgeline.topics import Answer, amount, an_accelerator, count, topic


@topic("scale-to-zero", subject="serving")
def scale_to_zero(
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(1, "Devices of the replica.", noun="GPUs"),
    requests_per_s: Number = amount(
        "4requests/h", "requests/h", "Mean rate of requests in the hours that have any."
    ),
    idle_share: Number = amount("0.5", "", "Share of the day without any requests.", most="1"),
    start_s: Number = amount("65s", "s", "From a request to the first answer, stopped before."),
    keep_s: Number = amount("300s", "s", "Quiet time before the replica stops."),
    cost_per_start_usd: Number = amount("0.02USD", "USD", "What one start costs besides time."),
    wait_usd_per_s: Number = amount("0.002USD/s", "USD/s", "What a second of waiting is worth."),
    buffer: Number = count(100, "Requests that the gateway holds meanwhile.", noun="requests"),
) -> Answer:
    """Whether running to zero is cheaper than staying up, from which rate not, and the wait added.

    Requests are taken as random within the hours that have any. Without a price on waiting and
    starts, stopping is always cheaper; with one, the keep-alive time drops out of the break-even.
    """
    price = (gpus * accelerator.price_usd_per_s).named("replica_price_usd_per_s", "USD/h")
    even = zero_break_even_hz(price, cost_per_start_usd, wait_usd_per_s, start_s)
    stopped = stopped_share(requests_per_s, start_s, keep_s)
    active = (1 - idle_share).named("active_share", "%")
    starts = (active * requests_per_s * stopped).named("starts_per_s", "1/day")
    waiting = held_s(requests_per_s, start_s)
    off = (idle_share + active * stopped).named("stopped_share", "%")
    cost = starts * (cost_per_start_usd + wait_usd_per_s * waiting)
    saved = (off * price - cost).named("saved_usd_per_s", "USD/day")
    added = (stopped * waiting).named("mean_wait_s", "s")
    peak = ceil(held_at_most(requests_per_s, start_s)).named("held_requests", "requests")
    is_cheaper = holds(even > requests_per_s)
    refused = largest(none=0 * peak, over=peak - buffer).named("refused_requests", "requests")
    return Answer(
        ("Run to zero: " if is_cheaper else "Stay up in the busy hours: ")
        + "below {break_even_per_s} zero is cheaper; at {requests_per_s} stopping saves "
        "{saved_usd_per_s}, waiting priced in, and adds {mean_wait_s} on average, {start_s} for "
        "{cold_share} of requests",
        {
            "break_even_per_s": even.named("break_even_per_s", "requests/h"),
            "saved_usd_per_s": saved,
            "mean_wait_s": added,
            "cold_share": stopped.named("cold_share", "%"),
            "stopped_share": off,
            "starts_per_s": starts,
            "held_requests": peak,
            "refused_requests": refused,
        },
        notes=(
            "The break-even is for the busy hours; hours without any request are saved whole, for "
            "one start a day that is not counted here.",
            "A longer keep-alive does not move the break-even: it trades fewer cold starts for "
            "less saved in the same proportion.",
            "What the buffer does not hold is refused with 503 and a Retry-After of the start.",
        ),
        ok=is_cheaper,
    )
