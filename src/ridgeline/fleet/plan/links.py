"""What a bad link costs a job: flaps that stall or kill it, replays that eat its bandwidth."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.fleet.plan.clos import somewhere
from ridgeline.physics.links import (
    bit_error_rate,
    go_back_n_loss,
    packet_error_share,
    replay_share,
    restart_gpu_s,
    selective_repeat_loss,
    slowest_link_gpus,
    stall_gpu_s,
    transport_timeout_s,
)
from ridgeline.quantity import Number, Quantity, choose
from ridgeline.show import show
from ridgeline.topics import Answer, amount, an_accelerator, count, topic

#: Replays beyond so many times what bit errors explain have another cause.
_EXPLAINED = 2.0


@topic("link-flap", subject="network")
def link_flap(
    flap_s: Number = amount("2 s", "s", "How long the link was down.", least="1 ms"),
    gpus: Number = count(1000, "Devices of the job on it.", noun="GPUs"),
    timeout_exponent: Number = count(20, "NCCL_IB_TIMEOUT: 4.096 us x 2^this a try.", most=31),
    retries: Number = count(7, "NCCL_IB_RETRY_CNT.", most=7),
    restart_s: Number = amount(
        "5 min",
        "min",
        "Time from the failure until the job runs again.",
        interval=("2 min", "15 min"),
    ),
    checkpoint_s: Number = amount("30 min", "min", "Time between checkpoints."),
    accelerator: Accelerator = an_accelerator("h100-sxm", "The device whose time is lost."),
    price_usd_per_s: Number = amount(
        "0 USD/h", "USD/h", "Price of a device; 0 takes the catalog's."
    ),
    flaps_per_s: Number = amount("2 /week", "1/week", "Flaps of this link."),
) -> Answer:
    """Whether a flap stalls a job or restarts it, and the device time that each costs.

    A flap that is over before the transport gives up is ridden out: all ranks wait. A longer one
    ends the job with a transport error; half a checkpoint interval is lost on average.
    """
    timeout = transport_timeout_s(timeout_exponent, retries).named("timeout_s", "s")
    stall = stall_gpu_s(gpus, flap_s).named("stall_gpu_s", "GPU h")
    restart = restart_gpu_s(gpus, restart_s, checkpoint_s).named("restart_gpu_s", "GPU h")
    each = accelerator.price_or(price_usd_per_s)
    rides = flap_s < timeout
    cost = choose(rides, stall, restart, why="the flap is over before the transport gives up")
    cost = cost.named("cost_gpu_s", "GPU h")
    ends = "stalls" if somewhere(rides) else "restarts"
    return Answer(
        f"the job {ends}: {{cost_gpu_s}}, for {{flap_s}} down against a timeout of {{timeout_s}}",
        {
            "cost_gpu_s": cost,
            "stall_gpu_s": stall,
            "restart_gpu_s": restart,
            "restart_to_stall": (restart / stall).named("restart_to_stall", "x"),
            "timeout_s": timeout,
            "cost_usd": (cost * each).named("cost_usd", "USD"),
            "cost_usd_per_s": (cost * each * flaps_per_s).named("cost_usd_per_s", "USD/month"),
        },
        notes=(
            accelerator.price_note(price_usd_per_s, "--price-usd-per-s"),
            f"Ridden out it is {show(stall)}, restarted {show(restart)}: a longer timeout pays "
            "while links come back within it, and hides a link that does not.",
            "A link that flaps passes every short test. Count flaps a link over days and drain it "
            "above about two a week; a device may take up to four times the timeout computed.",
        ),
    )


@topic("link-replay", subject="network")
def link_replay(
    replays: Number = count(1_000_000, "Replays counted.", least=0),
    packets: Number = count(1_000_000_000, "Packets delivered meanwhile."),
    bit_errors: Number = count(1000, "Bit errors counted meanwhile, after correction.", least=0),
    watched_s: Number = amount("10 min", "min", "Time between the two readings.", least="1 s"),
    window_packets: Number = count(64, "Packets sent again for each replay."),
    link_bytes_per_s: Number = amount(
        "400 Gb/s", "Gb/s", "Rate of the link, one direction.", least="1 Mb/s"
    ),
    packet_bytes: Number = amount("4 KiB", "B", "Size of a packet.", least="64 B"),
    gpus: Number = count(1000, "Devices of the job on it.", noun="GPUs"),
    drain_share: Number = amount(
        "2 %", "%", "Loss of bandwidth from which the link is drained.", most="100 %"
    ),
    drain_replays_per_s: Number = amount(
        "1000 /s", "1/s", "Replays a second from which it is drained.", source="rule of thumb"
    ),
) -> Answer:
    """Bandwidth that a link loses to replays, and whether to watch it or drain it.

    With go-back-N every replay sends a window again, so that a rate far below 1 % is felt. Healthy
    links replay nothing: any replay is a reason to watch.
    """
    rate = replay_share(replays, packets).named("replay_share", "%")
    lost = go_back_n_loss(rate, window_packets).named("lost_share", "%")
    a_second = (replays / watched_s).named("replays_per_s", "1/s")
    errors = bit_error_rate(bit_errors, link_bytes_per_s, watched_s).named("bit_error_rate")
    expected = packet_error_share(errors, packet_bytes).named("replays_from_bit_errors", "%")
    verdict, why = _verdict(replays, lost, a_second, drain_share, drain_replays_per_s)
    return Answer(
        f"{verdict}: {{lost_share}} of the bandwidth is lost at {{replay_share}} replays and a "
        f"window of {{window_packets}}; {why}",
        {
            "lost_share": lost,
            "kept_bytes_per_s": (link_bytes_per_s * (1 - lost)).named("kept_bytes_per_s", "Gb/s"),
            "replay_share": rate,
            "replays_per_s": a_second,
            "selective_loss_share": selective_repeat_loss(rate).named("selective_loss_share", "%"),
            "job_gpus": slowest_link_gpus(gpus, lost).named("job_gpus", "GPUs"),
            "bit_error_rate": errors,
            "replays_from_bit_errors": expected,
            "loss_to_drain": (lost / drain_share).named("loss_to_drain", "x"),
            "replays_to_drain": (a_second / drain_replays_per_s).named("replays_to_drain", "x"),
        },
        notes=_replay_notes(rate, lost, expected),
        ok=verdict != "drain",
    )


def _verdict(
    replays: Quantity,
    lost: Quantity,
    a_second: Quantity,
    drain_share: Quantity,
    drain_replays_per_s: Quantity,
) -> tuple[str, str]:
    if somewhere(lost >= drain_share):
        return "drain", f"the loss has reached {show(drain_share)}"
    if somewhere(a_second >= drain_replays_per_s):
        return "drain", f"{show(a_second)} has reached {show(drain_replays_per_s)}"
    if somewhere(replays > 0):
        return "watch", "healthy links have none"
    return "healthy", "no replay was counted"


def _replay_notes(rate: Quantity, lost: Quantity, expected: Quantity) -> tuple[str, ...]:
    if not somewhere(rate > 0):
        return ("Healthy links replay nothing: read the counters again after a day.",)
    told = [
        f"A rate of {show(rate)} reads as nothing, and costs {show(lost)}: go-back-N repeats the "
        "whole window. Selective repeat would lose the rate itself.",
        "A synchronous job goes at the pace of its slowest link, so the loss is that of all its "
        "devices while they wait for the network.",
    ]
    if somewhere(rate > expected * _EXPLAINED):
        told.append(
            f"Bit errors explain {show(expected)} of it: look for a slow receiver, a throttled bus "
            "or a timeout before cleaning the fibre."
        )
    return tuple(told)
