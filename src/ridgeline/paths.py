"""Where Ridgeline keeps things on a machine: caches that may be deleted, and run state."""

import os
import sys
from pathlib import Path


def cache_home() -> Path:
    """Converted weights: all may be deleted. `RIDGELINE_CACHE` moves it."""
    if moved := os.environ.get("RIDGELINE_CACHE"):
        return Path(moved)
    return _xdg("XDG_CACHE_HOME", ".cache", "Library/Caches") / "ridgeline"


def state_home() -> Path:
    """What runs here now, and its logs. `RIDGELINE_STATE` moves it."""
    if moved := os.environ.get("RIDGELINE_STATE"):
        return Path(moved)
    return _xdg("XDG_STATE_HOME", ".local/state", "Library/Application Support") / "ridgeline"


def _xdg(variable: str, elsewhere: str, on_macos: str) -> Path:
    """The XDG base directory, or the platform's own place for it."""
    if named := os.environ.get(variable):
        return Path(named)
    return Path.home() / (on_macos if sys.platform == "darwin" else elsewhere)
