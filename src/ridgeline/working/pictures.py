"""What all pictures share: where they may go, their frame, their axes with units.

SVG or PNG through matplotlib (extra `plot`), which is imported only when a picture is drawn.
"""

import importlib.util
import io
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ridgeline.errors import MissingExtraError, SpecError
from ridgeline.units import Unit
from ridgeline.working.words import phrase

INK, BLUE, ORANGE, GREY = "#22272e", "#1f6feb", "#d9730d", "#8b949e"
GROUNDS = ("#f2f6fd", "#fdf3e7", "#eef7ee", "#f6f0fa")
_SUFFIXES = (".svg", ".png")


def check_place(path: Path) -> None:
    """Complain before the work and not after it. Raises SpecError and MissingExtraError."""
    if path.suffix not in _SUFFIXES:
        raise SpecError(
            f'"{path}" is neither an .svg nor a .png file',
            where="--plot",
            remedy=str(path.with_suffix(".svg")) if path.name else "answer.svg",
        )
    if not path.parent.is_dir():
        raise SpecError(
            f"the folder {path.parent} does not exist", where="--plot", remedy="one that does"
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError(
            "pictures need matplotlib, which is not installed",
            where="--plot",
            remedy="pip install 'ridgeline[plot]', in a checkout pip install '.[plot]'",
        )


def beside(axes: Any, at: tuple[float, float], text: str, *, is_rising: bool) -> None:
    """A label at a point, on the side that a curve leaves free."""
    left, right = (axes.transData.transform((end, 0))[0] for end in axes.get_xlim())
    share = (axes.transData.transform(at)[0] - left) / (right - left)
    side = -1 if share > 0.66 else 1
    lower = is_rising == (side > 0)
    axes.annotate(
        text, at, xytext=(10 * side, -10 if lower else 10), textcoords="offset points",
        ha="left" if side > 0 else "right", va="top" if lower else "bottom", fontsize=8.5,
        color=INK, zorder=5,
        bbox={"boxstyle": "round,pad=0.25", "fc": "white", "ec": "none", "alpha": 0.85},
    )  # fmt: skip


def axis(name: str, unit: Unit) -> str:
    """An axis: words, and the unit, which is not said twice."""
    words = phrase(name)
    spoken = f" {unit.symbol.replace('/', ' per ')}"
    if "/" in spoken or " per " in spoken:
        words = words.removesuffix(spoken)
    told = not unit.symbol or unit.symbol in words.split()
    return words if told else f"{words}, {unit.symbol}"


def plain_number(value: float, _place: int | None = None) -> str:
    """A tick without powers of ten."""
    return f"{value:,.10g}"


def framed(height: float = 4.2) -> tuple[Any, Any]:
    """A figure with one pair of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, height), layout="constrained", dpi=120)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dfe4ea", linewidth=0.7)
    axes.set_axisbelow(True)
    return figure, axes


def save(figure: Any, axes: Any, title: str, path: Path) -> None:
    """Write the file; the same picture is the same file, byte for byte."""
    import matplotlib as mpl

    axes.set_title(title, color=INK, fontsize=11, loc="left")
    metadata = {"Date": None} if path.suffix == ".svg" else {}
    with mpl.rc_context({"svg.hashsalt": "ridgeline", "svg.fonttype": "none"}):
        drawn = io.BytesIO()
        figure.savefig(drawn, format=path.suffix.removeprefix("."), metadata=metadata)
    write_whole(path, drawn.getvalue())


def write_whole(path: Path, content: bytes, where: str = "--plot") -> None:
    """The whole file or none of it: written beside its place first, then moved there.

    Raises SpecError where that cannot be; what was there before is then as it was.
    """
    beside_it = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside_it.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside_it.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside_it.unlink(missing_ok=True)
        raise SpecError(
            f"{path} cannot be written ({error.strerror or error})",
            where=where,
            remedy="a folder that can be written, with room",
        ) from error
