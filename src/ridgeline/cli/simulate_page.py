"""Writes the page of `ridgeline simulate serving --html`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ridgeline.serving.simulate.outcome import Outcome


def write_page(
    path: Path, told: dict[str, Any], drawn: "dict[str, Outcome]", says: list[str]
) -> None:
    """The whole file or none of it; SpecError where it cannot be written."""
    from ridgeline.serving.simulate.page import page
    from ridgeline.working.pictures import write_whole

    write_whole(path, page(told, drawn, says).encode(), where="--html")
