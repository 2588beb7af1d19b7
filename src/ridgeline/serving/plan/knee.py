"""The curve of latency against throughput over the batch: its knee, and where an objective cuts."""

from dataclasses import dataclass

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.memory import sequences_that_fit
from ridgeline.physics.roofline import even_batch, knee_batch
from ridgeline.quantity import Number, Quantity, choose, floor, given, smallest
from ridgeline.serving.plan.decode import WEIGHT_DTYPES, Decode, an_engine, one_token
from ridgeline.serving.plan.splits import check_tensor_parallel, points
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
from ridgeline.working.formula import bound


@dataclass(frozen=True)
class Cut:
    """Where batches end at one context: the knee, what the objective and what memory allow."""

    decode: Decode
    context: Number
    tpot_s: Number
    left: Quantity

    @property
    def knee(self) -> Quantity:
        """Where arithmetic catches up with all reads; unlimited where it never does."""
        sides = self.decode.sides(self.context)
        knee = knee_batch(sides.weights_s, sides.arithmetic_each_s, sides.reads_each_s)
        return knee.named("knee_batch", "sequences", note="cache counted")

    @property
    def even(self) -> Quantity:
        """Where caches are as many bytes as weights, so that half of all throughput is reached."""
        each = self.decode.sequence_bytes(self.context)
        return even_batch(self.decode.weights_bytes, each).named("even_batch", "sequences")

    @property
    def objective(self) -> Quantity:
        """The largest batch whose step is within the objective, by reads and by arithmetic."""
        reads = self.decode.batch_by_reads(self.tpot_s, self.context)
        work = self.decode.batch_by_arithmetic(self.tpot_s, self.context)
        batch = smallest(reads=reads, arithmetic=work)
        return batch.named("objective_batch", "sequences")

    @property
    def memory(self) -> Quantity:
        """The largest batch whose caches fit beside the weights."""
        fit = sequences_that_fit(self.left, self.decode.sequence_bytes(self.context))
        return fit.named("memory_batch", "sequences")

    @property
    def operating(self) -> Quantity:
        """The batch to run: more would break the objective, not fit, or only add latency."""
        batch = smallest(objective=self.objective, memory=self.memory, knee=floor(self.knee))
        return batch.named("operating_batch", "sequences")

    def step_s(self, batch: Number) -> Quantity:
        """Time per output token at a batch; of one sequence where the batch is none."""
        one = given(1, "sequences", name="one_sequence")
        some = choose(batch > 0, batch, one, why="any fit")
        return self.decode.step_s(some, self.context)

    def tokens_per_s(self, batch: Number) -> Quantity:
        """Throughput at a batch."""
        return batch * one_token() / self.step_s(batch)


@topic("throughput-knee", subject="serving")
def throughput_knee(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(8, "Devices that share the weights.", noun="GPUs"),
    batch: Number = count(
        0, "Batch to look at, 0 for the one to run; sweep it for the curve.", least=0
    ),
    context_tokens: Number = amount("2k", "tokens", "Tokens that each has cached.", least="1"),
    contexts: tuple[Quantity, ...] = numbers(
        "512, 2k, 8k, 32k, 128k", "tokens", "Contexts of the table."
    ),
    tpot_s: Number = amount("50 ms", "s", "Objective: time per output token.", least="0.1ms"),
    memory_share: Number = amount("0.9", "", "Share of memory for weights and cache.", most="1"),
    roofline_share: Number = amount(
        "1",
        "",
        "Share of bandwidth and peak that a step attains under the roofline.",
        least="0.01",
        most="1",
        interval=("0.6", "1"),
        source="the ideal; fits of measured steps are 0.5 to 0.97 (`step-time`)",
    ),
    dtype: str = choice("bf16", WEIGHT_DTYPES, "Type of the weights; native is as shipped."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
    engine: str = an_engine(),
) -> Answer:
    """Which batch to run: the knee of latency against throughput, and the cut of an objective."""
    check_tensor_parallel(model, gpus)
    shares = (roofline_share, roofline_share)
    decode = Decode(model, accelerator, gpus, dtype, kv_dtype, *shares, engine=engine)
    left = decode.left_bytes(memory_share)
    cut = Cut(decode, context_tokens, tpot_s, left)
    runs = cut.operating
    can = max(points(runs)) > 0
    here = choose(batch > 0, batch, runs, why="a batch is given").named("batch_here", "sequences")
    return Answer(
        "Run {operating_batch}: "
        + (f"{bound(runs)} ends it. " if can else f"{bound(runs)} allows none. ")
        + "{batch_here} give {batch_tokens_per_s} at {batch_step_s} a token. Weights alone have "
        "their knee at {weights_knee_batch}; " + _moved(decode, cut.knee),
        {
            "batch_tokens_per_s": cut.tokens_per_s(here).named("batch_tokens_per_s"),
            "batch_step_s": cut.step_s(here).named("batch_step_s"),
            "batch_here": here,
            "operating_batch": runs,
            "weights_knee_batch": decode.ridge_batch().named("weights_knee_batch"),
            "knee_batch": cut.knee,
            "even_batch": cut.even,
            "objective_batch": cut.objective,
            "memory_batch": cut.memory,
        },
        table=tuple(_row(Cut(decode, context, tpot_s, left)) for context in contexts),
        notes=_notes(decode),
        ok=can,
    )


def _moved(decode: Decode, knee: Quantity) -> str:
    """What the cache makes of the knee."""
    if decode.is_fitted:
        return "caches, read apart, leave it there"
    if min(points(knee)) == float("inf"):
        return "with {context_tokens} of cache there is none"
    return "{context_tokens} of cache move it to {knee_batch}"


def _row(cut: Cut) -> dict[str, Quantity | str]:
    runs = cut.operating
    return {
        "context": cut.context,
        "knee": cut.knee,
        "half of all": cut.even,
        "objective cuts at": cut.objective,
        "memory holds": cut.memory,
        "run": runs,
        "throughput": cut.tokens_per_s(runs),
        "ends it": bound(runs),
    }


_CURVE = (
    "The ridge is the knee of the weights alone. Each sequence also reads its own cache: past "
    "some context reads stay ahead of arithmetic for every batch, there is no knee, and the "
    "gain of another sequence falls off where caches outweigh the weights (`half of all`)."
)
_FITTED_CURVE = (
    "Engines read caches after the products, not beside them: the knee of the weights stays at "
    "every context, and the gain of another sequence falls off where caches outweigh the weights "
    "(`half of all`)."
)


def _notes(decode: Decode) -> tuple[str, ...]:
    notes = [_FITTED_CURVE if decode.is_fitted else _CURVE, decode.told()]
    if decode.model.is_moe:
        notes.append(
            "The cut of the objective takes all experts as read; small batches visit fewer, and "
            "the curve of the batch counts the distinct ones."
        )
    return tuple(notes)
