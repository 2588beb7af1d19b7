"""`ridgeline dashboards`."""

import json
from pathlib import Path

import yaml
from click.testing import CliRunner

from ridgeline.cli import ridgeline_command


def test_both_files_are_written_and_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "observe"
    result = CliRunner().invoke(ridgeline_command, ["dashboards", str(folder)])
    assert result.exit_code == 0
    assert "Import" in result.output
    assert json.loads((folder / "grafana.json").read_text())["title"] == "Ridgeline gateway"
    assert yaml.safe_load((folder / "alerts.yaml").read_text())["groups"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(ridgeline_command, ["dashboards", str(tmp_path / "file" / "x")])
    assert result.exit_code != 0
    assert "cannot be written" in str(result.exception)
