"""Says which part of the product is missing, and the command that installs it."""

import importlib.util

from ridgeline.errors import MissingExtraError


def needs(module: str, extra: str) -> None:
    """MissingExtraError, unless `module` (which `ridgeline[extra]` brings) is installed."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(
            f"this command needs the part [{extra}] of Ridgeline ({module} is not installed)",
            remedy=f"pip install 'ridgeline[{extra}]', in a checkout pip install '.[{extra}]'",
        )
