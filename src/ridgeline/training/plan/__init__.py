"""Plans of training: memory, layouts, communication, data, cost. Laws come from `physics`.

Each module registers its topics when it is imported.
"""

from ridgeline.training.plan import (
    activations,
    clouds,
    context_parallel,
    corpus,
    cost,
    experts,
    fine_tune,
    layout,
    overlap,
    qlora,
    spot,
    storage,
    trillion,
)

__all__ = [
    "activations",
    "clouds",
    "context_parallel",
    "corpus",
    "cost",
    "experts",
    "fine_tune",
    "layout",
    "overlap",
    "qlora",
    "spot",
    "storage",
    "trillion",
]
