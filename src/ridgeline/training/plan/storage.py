"""Storage of a training run: a trickle of tokens, and bursts of checkpoints."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.roofline import read_s
from ridgeline.physics.training import training_flop_per_token, training_tokens_per_s
from ridgeline.quantity import Number, ceil, largest
from ridgeline.topics import Answer, a_model, amount, an_accelerator, count, topic


@topic("training-storage", subject="data")
def training_storage(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(16_384, "Devices of the run.", noun="GPUs"),
    mfu: Number = amount("0.4", "", "Share of the peak that is reached.", least="0.001", most="1"),
    id_bytes_per_token: Number = amount(
        "4 B/token", "B/token", "Bytes of a token's id.", least="1 B/token"
    ),
    kept_bytes: Number = amount(
        "12 B",
        "B",
        "Bytes a checkpoint keeps of a parameter.",
        least="1 B",
        interval=("12 B", "16 B"),
        source="32-bit master and two moments; gradients are not kept",
    ),
    write_s: Number = amount("60s", "s", "Time a checkpoint may take to write.", least="0.1s"),
    restore_s: Number = amount("300s", "s", "Time a restart may take to read.", least="0.1s"),
    interval_s: Number = amount("30min", "s", "Time between checkpoints.", least="1s"),
    local_rate: Number = amount(
        "5 GB/s", "GB/s", "Local NVMe of one node, writing.", least="0.1 GB/s"
    ),
    replicas: Number = count(128, "Data-parallel replicas that read at a restart."),
    kept: Number = count(10, "Checkpoints that are kept.", noun="values"),
) -> Answer:
    """Rates and sizes of a run's storage: token stream, checkpoint burst, restore, tiers.

    A checkpoint is drained to a shared tier before the next one; local disks take the burst.
    """
    flop = training_flop_per_token(model.active_params)
    rate = training_tokens_per_s(gpus, accelerator.flop_per_s("bf16"), mfu, flop)
    stream = (rate * id_bytes_per_token).named("stream_bytes_per_s")
    checkpoint = (model.params * kept_bytes).named("checkpoint_bytes")
    burst = (checkpoint / write_s).named("burst_bytes_per_s")
    drain = (checkpoint / interval_s).named("drain_bytes_per_s", note="to the shared tier")
    restore = (checkpoint / restore_s).named("restore_bytes_per_s", note="each byte read once")
    nodes = ceil(gpus / accelerator.per_node).named("nodes", "nodes")
    share = (checkpoint / nodes).named("node_share_bytes")
    local = read_s(share, local_rate).named("local_write_s")
    return Answer(
        "{stream_bytes_per_s} of token ids against {burst_bytes_per_s} while a checkpoint of "
        "{checkpoint_bytes} is written: {burst_over_stream}",
        {
            "burst_bytes_per_s": burst,
            "stream_bytes_per_s": stream,
            "burst_over_stream": (burst / stream).named("burst_over_stream", "x"),
            "checkpoint_bytes": checkpoint,
            "tokens_per_s": rate.named("tokens_per_s"),
            "restore_bytes_per_s": restore,
            "restore_all_bytes_per_s": (restore * replicas).named(
                "restore_all_bytes_per_s", note="where every replica reads its own copy"
            ),
            "local_write_s": local,
            "drain_bytes_per_s": drain,
        },
        table=(
            {"tier": "local NVMe", "holds": share, "rate": local_rate, "takes": "the burst"},
            {
                "tier": "shared file system",
                "holds": (2 * checkpoint).named("shared_bytes", note="the last, and the next"),
                "rate": largest(drain=drain, restore=restore).named("shared_bytes_per_s"),
                "takes": "the drain, and restores",
            },
            {
                "tier": "object store",
                "holds": (kept * checkpoint).named("archive_bytes"),
                "rate": drain,
                "takes": "what is kept, and the tokens",
            },
        ),
        notes=(
            "size storage for checkpoints: the token stream is a trickle beside them",
            "16 bytes a parameter count gradients, which no checkpoint needs: 12 to 14 are kept",
        ),
    )
