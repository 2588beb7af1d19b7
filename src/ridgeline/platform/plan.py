"""Every topic of every floor; `ridgeline plan` and the Python call go through here."""

import importlib

from ridgeline.topics import TOPICS, Topic

#: Modules that register topics when they are imported.
_ROOMS = (
    "ridgeline.serving.plan",
    "ridgeline.training.plan",
    "ridgeline.fleet.plan",
)


def topics() -> dict[str, Topic]:
    """All topics by name, in the order of their subjects."""
    for room in _ROOMS:
        importlib.import_module(room)
    return TOPICS
