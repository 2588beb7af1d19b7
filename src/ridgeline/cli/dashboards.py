"""`ridgeline dashboards`: files for Grafana and Prometheus, to import as they are."""

from importlib.resources import files
from pathlib import Path

import click

from ridgeline.errors import SpecError

#: What is written, and how it is used.
FILES = {
    "grafana.json": "Grafana: Dashboards, New, Import",
    "alerts.yaml": "Prometheus: name it under rule_files",
}


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def dashboards(folder: Path) -> None:
    """Write a Grafana dashboard and Prometheus alert rules into FOLDER.

    They ask for the metrics that a gateway shows at /metrics. Files of the same name are replaced.
    """
    there = files("ridgeline.serving.gateway") / "observe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, use in FILES.items():
            (folder / name).write_text((there / name).read_text("utf-8"), encoding="utf-8")
            click.echo(f"{folder / name}   {use}")
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise SpecError(problem, where=str(folder), remedy="a folder of yours") from error
    click.echo(
        "Let Prometheus scrape the gateway's /metrics, with the gateway's key if it has one."
    )
