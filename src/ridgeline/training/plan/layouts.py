"""The search over layouts: what divides, what fits in memory, and which is fastest.

It runs on arrays: all layouts go through the same laws at once, as numbers without a past.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.quantity import given, value_of
from ridgeline.training.plan.activations import RECOMPUTE, Kept
from ridgeline.training.plan.shape import Layout, Machine, Step, Work, bare
from ridgeline.training.plan.step import step

#: What a search may choose for recomputation: with FlashAttention scores are never kept.
LEVELS = ("none", "elementwise", "full")
_CHUNKS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
_MICRO_BATCHES = (1, 2, 4)
_POWERS = (1, 2, 4, 8, 16, 32, 64)
_ZERO = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Degrees that whoever asks has set; 0 where the search may choose."""

    tensor: int
    pipeline: int
    context: int
    expert: int
    chunks: int
    micro_batch: int
    zero: int
    recompute: str


@dataclass(frozen=True, slots=True)
class Row:
    """One layout in whole numbers."""

    tensor: int
    pipeline: int
    context: int
    expert: int
    data: int
    chunks: int
    micro_batch: int
    zero: int
    recompute: str

    @property
    def degrees(self) -> tuple[int, ...]:
        """What makes two layouts the same split."""
        return (self.tensor, self.context, self.pipeline, self.data, self.expert)

    def __str__(self) -> str:
        words = [f"TP{self.tensor}", f"CP{self.context}", f"PP{self.pipeline}", f"DP{self.data}"]
        words += [f"EP{self.expert}"] if self.expert > 1 else []
        return " ".join(word for word in words if word != "CP1")


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: each split's best layout, fastest first, and how many were tried."""

    rows: tuple[Row, ...]
    tried: int
    fit: int


def check(model: Model, work: Work, machine: Machine, fixed: Fixed) -> None:
    """SpecError where a degree that was set cannot be: the field, why, and what would do."""
    tensor, heads, vocab = fixed.tensor, _int(work.block.heads), _int(work.vocab)
    if tensor and (heads % tensor or vocab % tensor):
        what = f"{heads} attention heads" if heads % tensor else f"a vocabulary of {vocab:,}"
        fitting = [n for n in range(1, 65) if heads % n == 0 and vocab % n == 0]
        raise SpecError(
            f"{tensor} does not divide {what} of {model.name}",
            where="tensor-parallel",
            remedy=", ".join(map(str, fitting)),
        )
    if fixed.pipeline > _int(work.layers):
        raise SpecError(
            f"{fixed.pipeline} stages for {_int(work.layers)} layers",
            where="pipeline-parallel",
            remedy=f"at most {_int(work.layers)}",
        )
    length = _int(work.sequence_tokens)
    if not _evenly(length, fixed.context or 1):
        raise SpecError(
            f"two parts for each of {fixed.context} ranks do not divide {length:,} tokens",
            where="context-parallel",
            remedy=f"a sequence of a multiple of {2 * fixed.context} tokens",
        )
    if fixed.expert > 1 and _int(work.experts) % fixed.expert:
        raise SpecError(
            f"{fixed.expert} does not divide {_int(work.experts)} experts of {model.name}",
            where="expert-parallel",
            remedy=", ".join(str(n) for n in _POWERS if _int(work.experts) % n == 0),
        )
    _check_world(work, machine, fixed)


def _evenly(length: int, context: int) -> bool:
    """Whether a sequence splits over context ranks: two parts each, so that causal work is even."""
    return context == 1 or length % (2 * context) == 0


def _check_world(work: Work, machine: Machine, fixed: Fixed) -> None:
    """Where enough is set that the data-parallel degree follows, it must divide the batch."""
    gpus, batch = _int(machine.gpus), _int(work.batch)
    ways = max(fixed.tensor, 1) * max(fixed.pipeline, 1) * max(fixed.context, 1)
    if gpus % ways:
        raise SpecError(
            f"{gpus:,} devices cannot be split {ways} ways",
            where="gpus",
            remedy=f"{gpus // ways * ways or ways:,} or {(gpus // ways + 1) * ways:,}",
        )
    data = gpus // ways
    if fixed.tensor and fixed.pipeline and batch % data and (fixed.context or data > batch == 0):
        raise _batch_error(batch, data, ways)
    if fixed.tensor and fixed.pipeline and not fixed.context:
        contexts = [c for c in _POWERS if data % c == 0]
        if all(batch % (data // c) for c in contexts):
            raise _batch_error(batch, data, ways)


def _batch_error(batch: int, data: int, ways: int) -> SpecError:
    near = batch // data * data
    return SpecError(
        f"a global batch of {batch} cannot be shared by DP = {data}",
        where="global-batch",
        remedy=f"{near or data} or {near + data} sequences, or "
        f"{ways * _divisor(batch, data)} devices",
    )


def _divisor(batch: int, most: int) -> int:
    return max(n for n in range(1, min(batch, most) + 1) if batch % n == 0)


def _int(number: Any) -> int:
    return round(float(value_of(number)))


def candidates(work: Work, machine: Machine, fixed: Fixed) -> list[Row]:
    """Every layout that divides; SpecError where there is none."""
    levels = LEVELS if fixed.recompute == "search" else (fixed.recompute,)
    zeros = (fixed.zero,) if fixed.zero else _ZERO
    splits = list(_splits(work, machine, fixed))
    if not splits:
        raise SpecError(
            f"no split of {_int(machine.gpus):,} devices divides the heads, the vocabulary, the "
            f"sequence and a global batch of {_int(work.batch):,}",
            where="global-batch",
            remedy="a batch with more divisors, such as a power of two times the devices' odd part",
        )
    found = [
        Row(*split, chunks, micro, zero, level)
        for split in splits
        for chunks, micro in _schedules(work, split, fixed)
        for zero in zeros
        for level in levels
    ]
    if not found:
        raise SpecError(
            "the sequences of a replica do not make whole micro-batches, or with virtual stages "
            "fewer of them than there are stages",
            where="micro-batch" if fixed.micro_batch else "virtual-stages",
            remedy="a smaller one that divides, or a larger global batch",
        )
    return found


def _splits(work: Work, machine: Machine, fixed: Fixed) -> Iterator[tuple[int, int, int, int, int]]:
    """Tensor, pipeline, context, expert and data degrees whose product is the cluster."""
    gpus, batch, layers = _int(machine.gpus), _int(work.batch), _int(work.layers)
    heads, vocab, experts = _int(work.block.heads), _int(work.vocab), _int(work.experts)
    length = _int(work.sequence_tokens)
    domain = _int(machine.domain)
    tensors = [t for t in _POWERS if t <= domain and heads % t == 0 and vocab % t == 0]
    stages = [n for n in range(1, layers + 1) if gpus % n == 0]
    for tensor in [fixed.tensor] if fixed.tensor else tensors:
        for pipeline in [fixed.pipeline] if fixed.pipeline else stages:
            for context in [fixed.context] if fixed.context else _POWERS:
                ways = tensor * pipeline * context
                if gpus % ways or pipeline > layers or not _evenly(length, context):
                    continue
                data = gpus // ways
                if batch % data:
                    continue
                for expert in [fixed.expert] if fixed.expert else _POWERS:
                    if experts % expert == 0 and (data * context) % expert == 0:
                        yield tensor, pipeline, context, expert, data


def _schedules(
    work: Work, split: tuple[int, int, int, int, int], fixed: Fixed
) -> Iterator[tuple[int, int]]:
    """Chunks a stage and sequences a micro-batch; interleaving needs a micro-batch a stage."""
    _, pipeline, _, _, data = split
    share = _int(work.batch) // data
    for micro in [fixed.micro_batch] if fixed.micro_batch else _MICRO_BATCHES:
        if share % micro:
            continue
        searched = _CHUNKS if pipeline > 1 else (1,)
        for chunks in [fixed.chunks] if fixed.chunks else searched:
            deep = chunks == 1 or share // micro >= pipeline
            if deep and pipeline * (chunks - 1) < _int(work.layers):
                yield chunks, micro


def rank(work: Work, machine: Machine, rows: list[Row], room_bytes: float) -> Found:
    """Each split's fastest layout that fits, fastest first; where none fits, the smallest."""
    import numpy as np

    with np.errstate(all="ignore"):
        run = step(bare(work), bare(machine), _arrays(rows))
    memory, spent = np.asarray(run.memory_bytes), np.asarray(run.step_s)
    memory, spent = np.broadcast_arrays(memory, spent)
    fits = memory <= room_bytes
    order = np.argsort(np.where(fits, spent, np.inf), kind="stable")
    if not fits.any():
        return Found((rows[int(memory.argmin())],), len(rows), 0)
    best: dict[tuple[int, ...], Row] = {}
    for index in order[: int(fits.sum())]:
        row = rows[int(index)]
        best.setdefault(row.degrees, row)
    return Found(tuple(best.values()), len(rows), int(fits.sum()))


def _arrays(rows: list[Row]) -> Layout:
    import numpy as np

    def column(name: str) -> Any:
        return np.array([getattr(row, name) for row in rows], dtype=float)

    kept = [RECOMPUTE[row.recompute] for row in rows]
    fields = ("whole", "split", "block", "query", "key", "gate")
    columns = {name: np.array([getattr(one, name) for one in kept]) for name in fields}
    again = np.array([float(row.recompute == "full") for row in rows])
    degrees = ("tensor", "pipeline", "context", "expert", "data", "chunks", "micro_batch", "zero")
    return Layout(
        **{name: column(name) for name in degrees},
        kept=Kept(**columns, scores=False),
        again=again,
    )


def explained(work: Work, machine: Machine, row: Row, source: str) -> tuple[Layout, Step]:
    """The layout as quantities, and its step with all of its past."""
    nouns = {"tensor": "ranks", "context": "ranks", "expert": "ranks", "data": "ranks"}
    names = {"micro_batch": "micro_batch", "zero": "zero_stage", "chunks": "chunks"}
    degrees = {
        name: given(
            getattr(row, name),
            nouns.get(name, ""),
            name=names.get(name, f"{name}_degree"),
            source=source,
        )
        for name in (*nouns, "pipeline", *names)
    }
    again = given(float(row.recompute == "full"), name="forward_again", source=source)
    layout = Layout(**degrees, kept=RECOMPUTE[row.recompute], again=again)
    return layout, step(work, machine, layout)
