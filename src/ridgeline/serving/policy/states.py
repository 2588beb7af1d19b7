"""The states of a replica. Whoever asks "may it get requests?" compares with `READY`."""

from enum import StrEnum


class State(StrEnum):
    """Where a replica is in its life; only `READY` gets requests.

    STARTING ─answers─▶ LOADING ─gave a token─▶ READY ─▶ DRAINING ─nothing runs─▶ EMPTY ─▶ STOPPED
        ▲                  ▲                      │
        └──────────────────┴────────DOWN◀─────────┘
    """

    STARTING = "starting"  # nothing answers yet
    LOADING = "loading"  # something answers and says, or shows, that it is not ready
    READY = "ready"
    DOWN = "down"  # was ready, and is not
    DRAINING = "draining"  # ends what it has, gets nothing new
    EMPTY = "empty"  # drained: it may be stopped
    STOPPED = "stopped"  # gone for good
