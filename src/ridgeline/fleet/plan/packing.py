"""Packing pieces into as few equal boxes as can be, exactly: GPUs into nodes, slices into GPUs."""

from collections import Counter
from collections.abc import Iterator, Sequence

#: A size along each dimension that has a capacity.
Size = tuple[int, ...]


def pack(items: Sequence[Size], capacity: Size) -> list[list[int]]:
    """The fewest boxes that hold all items, each box as indices of items, fullest first.

    Exact: bins are filled one after another with the largest item left, only so that nothing more
    would fit, and never with more waste than the number of boxes allows. Items that are larger
    than a box are our own mistake.
    """
    assert all(_fits(item, capacity) for item in items), (items, capacity)
    waiting: dict[Size, list[int]] = {}
    for index, item in enumerate(items):
        waiting.setdefault(item, []).append(index)
    counts = Counter(items)
    boxes = _least(items, capacity)
    while (found := _search(counts, boxes, capacity, set())) is None:
        boxes += 1
    packed = [[waiting[size].pop(0) for size in box] for box in found]
    return sorted(packed, key=len, reverse=True)


def _fits(item: Size, room: Size) -> bool:
    return all(need <= left for need, left in zip(item, room, strict=True))


def _least(items: Sequence[Size], capacity: Size) -> int:
    """A number of boxes that is needed at least, from the volume along each dimension."""
    return max(
        (-(-sum(one) // room) for *one, room in zip(*items, capacity, strict=True)), default=0
    )


def _search(
    counts: Counter[Size],
    boxes: int,
    capacity: Size,
    failed: set[tuple[int, frozenset[tuple[Size, int]]]],
) -> list[list[Size]] | None:
    """The boxes' contents, or None where the items do not fit into so many."""
    left = [size for size in sorted(counts, reverse=True) if counts[size]]
    if not left:
        return []
    if boxes < _least(list(counts.elements()), capacity):
        return None
    state = (boxes, frozenset((size, counts[size]) for size in left))
    if state in failed:
        return None
    for box in _fillings(left[0], counts, capacity):
        rest = counts.copy()
        rest.subtract(box)
        if (found := _search(rest, boxes - 1, capacity, failed)) is not None:
            return [box, *found]
    failed.add(state)
    return None


def _fillings(first: Size, counts: Counter[Size], capacity: Size) -> Iterator[list[Size]]:
    """Every way to fill one box around its first item so that nothing more would fit."""
    rest = counts.copy()
    rest[first] -= 1
    sizes = [size for size in sorted(rest, reverse=True) if rest[size]]
    room = tuple(have - used for have, used in zip(capacity, first, strict=True))

    def grow(box: list[Size], start: int, room: Size) -> Iterator[list[Size]]:
        used = Counter(box)
        used[first] -= 1
        fitting = [s for s in sizes if rest[s] > used[s] and _fits(s, room)]
        if not fitting:
            yield box
        for position in range(start, len(sizes)):
            size = sizes[position]
            if size in fitting:
                smaller = tuple(have - need for have, need in zip(room, size, strict=True))
                yield from grow([*box, size], position, smaller)

    yield from grow([first], 0, room)
