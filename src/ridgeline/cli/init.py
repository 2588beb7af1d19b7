"""`ridgeline init`: a commented platform.yaml to start from."""

from importlib import resources
from pathlib import Path

import click

from ridgeline.errors import SpecError


@click.command()
@click.argument("file", default="platform.yaml", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
def init(file: Path, force: bool) -> None:
    """Write a commented platform.yaml to FILE (platform.yaml where none is named)."""
    text = resources.files("ridgeline.cli").joinpath("platform.yaml").read_text(encoding="utf-8")
    try:
        with file.open("w" if force else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError as error:
        raise SpecError("is there already", where=str(file), remedy="--force") from error
    except OSError as error:
        raise SpecError(f"cannot be written: {error.strerror}", where=str(file)) from error
    click.echo(f"{file} is written. Serve it:\n  ridgeline up {file}")
