"""`--engine KEY=VALUE`, as the commands that make versions take it."""

from typing import Any

import yaml

from ridgeline.errors import SpecError
from ridgeline.spec import Loader


def engine_settings(given: tuple[str, ...]) -> dict[str, Any]:
    """KEY=VALUE as YAML would have it."""
    found = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise SpecError(f"{one!r} is not KEY=VALUE", where="--engine", remedy="dtype=int8")
        found[key] = yaml.load(value, Loader)  # noqa: S506 - it is a SafeLoader
    return found
