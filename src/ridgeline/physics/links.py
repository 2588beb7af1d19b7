"""What a bad link costs: stalls and restarts after a flap, and bandwidth lost to replays."""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, exp, smallest


@law
def transport_timeout_s(
    timeout_exponent: Number,
    retries: Number,
    tick_s: Number = 4.096e-6,
    largest_exponent: Number = 31.0,
) -> Number:
    """How long a reliable connection retries before it gives up: tick x 2^exponent x retries.

    The exponent is a field of five bits; a device may take up to four times as long.

    Source: InfiniBand architecture, local ACK timeout.
    """
    field = smallest(asked=timeout_exponent, field=largest_exponent)
    return tick_s * 2.0**field * retries


@law
def stall_gpu_s(gpus: Number, flap_s: Number) -> Number:
    """Device time lost while a synchronous job waits for one link.

    Source: all ranks wait for the slowest.
    """
    return gpus * flap_s


@law
def restart_gpu_s(
    gpus: Number, restart_s: Number, interval_s: Number, lost_interval_share: Number = 0.5
) -> Number:
    """Device time lost when a job starts again from its last checkpoint.

    Source: restart, and on average half an interval is done again.
    """
    return gpus * (restart_s + lost_interval_share * interval_s)


@law
def replay_share(replays: Number, packets: Number) -> Number:
    """Replays for each packet delivered, from two counters read over the same time.

    Source: definition.
    """
    return replays / packets


@law
def go_back_n_loss(replays_per_packet: Number, window_packets: Number) -> Number:
    """Share of the bandwidth lost when every replay sends a whole window again.

    Source: go-back-N, 1 - 1/(1 + r w) with r replays for each packet delivered.
    """
    return 1 - 1 / (1 + replays_per_packet * window_packets)


@law
def selective_repeat_loss(replays_per_packet: Number) -> Number:
    """Share of the bandwidth lost when only the lost packet is sent again.

    Source: selective repeat, 1 - 1/(1 + r).
    """
    return 1 - 1 / (1 + replays_per_packet)


@law
def bit_error_rate(
    bit_errors: Number, link_bytes_per_s: Number, watched_s: Number, bits_per_byte: Number = 8.0
) -> Number:
    """Bit errors for each bit that a busy link carried while it was watched.

    Source: definition.
    """
    return bit_errors / (link_bytes_per_s * watched_s * bits_per_byte)


@law
def packet_error_share(
    bit_errors_per_bit: Number, packet_bytes: Number, bits_per_byte: Number = 8.0
) -> Number:
    """Share of packets with at least one bit error, errors being independent.

    Source: 1 - (1 - e)^n, which for small e is 1 - exp(-e n).
    """
    return 1 - exp(-bit_errors_per_bit * packet_bytes * bits_per_byte)


@law
def slowest_link_gpus(gpus: Number, lost_share: Number) -> Number:
    """Devices' worth of network-bound work that a synchronous job loses to one slow link.

    Source: the slowest link sets the pace of a collective.
    """
    return gpus * lost_share
