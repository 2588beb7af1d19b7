"""Whether a model can be split over so many devices; every topic that splits asks here first."""

from typing import Any

from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.quantity import Number, value_of


def points(number: Number) -> list[float]:
    """Each value of a number that may be a sweep."""
    bare: Any = value_of(number)
    return [float(one) for one in bare.flat] if getattr(bare, "ndim", 0) else [float(bare)]


def divides(parts: float, whole: float) -> bool:
    """Whether `whole` splits into so many equal parts."""
    return parts >= 1 and whole % parts == 0


def check_decodes(model: Model) -> None:
    """Raise SpecError for encoders and diffusion models, which keep no cache."""
    if set(model.layer_mix) == {"bidirectional"}:
        raise SpecError(
            f"{model.name} does not decode token by token, so it keeps no cache",
            where="model",
            remedy="a language model",
        )


def check_tensor_parallel(model: Model, tensor_parallel: Number) -> None:
    """Raise SpecError unless query heads and vocabulary split evenly over the ranks.

    KV heads need not: past one a rank they are replicated. For pooled and latent attention the
    heads are those of the up-projection.
    """
    wholes = {"attention heads": model.heads.value}
    if model.data.get("vocab"):
        wholes["tokens of vocabulary"] = model.vocab.value
    for ranks in points(tensor_parallel):
        for noun, whole in wholes.items():
            if not divides(ranks, whole):
                raise SpecError(
                    f"{ranks:g} does not divide {whole:,.0f} {noun}",
                    where="tensor-parallel",
                    remedy=_nearest(ranks, list(wholes.values())),
                )


def check_divides(parts: Number, whole: Number, where: str, told: str) -> None:
    """Raise SpecError unless `parts` divides `whole` at every point; `told` names the whole."""
    ways = points(parts)
    sizes = points(whole)
    for index in range(max(len(ways), len(sizes))):
        part, size = ways[index % len(ways)], sizes[index % len(sizes)]
        if not divides(part, size):
            remedy = _nearest(part, [size])
            raise SpecError(f"{part:g} does not divide {size:g} {told}", where=where, remedy=remedy)


def splits(model: Model, most: int) -> list[int]:
    """The powers of two up to `most` that the model can be split over."""
    wholes = [model.heads.value] + ([model.vocab.value] if model.data.get("vocab") else [])
    powers = [2**n for n in range(most.bit_length()) if 2**n <= most]
    return [parts for parts in powers if all(divides(parts, whole) for whole in wholes)]


def _nearest(parts: float, wholes: list[float]) -> str:
    """The divisors of all on both sides, as a remedy."""
    ways = [n for n in range(1, int(min(wholes)) + 1) if all(divides(n, one) for one in wholes)]
    below = [n for n in ways if n < parts][-1:]
    above = [n for n in ways if n > parts][:1]
    return " or ".join(str(n) for n in below + above)
