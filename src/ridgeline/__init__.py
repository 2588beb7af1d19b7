"""Ridgeline: plan, simulate, run and diagnose AI infrastructure from one description.

Importing the package is cheap: it pulls neither torch nor a web server. The floors
(`ridgeline.serving` today) and the command line (`ridgeline.cli`) import what they need.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ridgeline.working.plan import Plan

__version__ = "0.1.0"


def plan(topic: str, /, *, set: dict[str, Any] | None = None, **parameters: Any) -> "Plan":  # noqa: A002 - as on the command line
    """Answer a question of capacity or cost: `ridgeline.plan("users-per-node", context="16k")`.

    Parameters are those that `ridgeline plan TOPIC --help` lists, written as there; `set` gives any
    other step a value, as `--set` does. The result prints as the command does, and has `.says`,
    `.values`, `.why()`, `.sweep("context=1k:128k")`, `.sensitivity()` and `.to_dict()`. Raises
    SpecError, CatalogError and UnitError with field, problem and remedy.
    """
    from ridgeline.platform.plan import topics
    from ridgeline.working.plan import plan as ask

    topics()
    return ask(topic, set or {}, parameters)
