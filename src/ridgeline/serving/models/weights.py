"""A spec's `model`, whatever it means: what those call who start replicas.

It may be a packaged model, a path, or a version of the store (`sha256:…`, `store:NAME`).

Law: a replica is told an id, never a name, so that all replicas of a version have the same weights
although somebody moves the name meanwhile; and it holds its version for as long as it lives.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from ridgeline.catalog.packaged import find_model
from ridgeline.errors import ModelError
from ridgeline.serving.models.copying import Progress, silent
from ridgeline.serving.models.manifest import Version
from ridgeline.serving.models.references import NAMED, is_reference
from ridgeline.serving.models.store import ModelStore, nobody_waits
from ridgeline.serving.spec import ModelSpec, UrlEngine


def models_home() -> Path:
    """The store of this machine. `RIDGELINE_MODELS` moves it."""
    if moved := os.environ.get("RIDGELINE_MODELS"):
        return Path(moved).expanduser()
    on_macos = "Library/Application Support" if sys.platform == "darwin" else ".local/share"
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / on_macos
    return Path(data) / "ridgeline" / "models"


def model_store(*, waiting: Callable[[str], None] = nobody_waits) -> ModelStore:
    """The store of this machine."""
    return ModelStore(models_home(), waiting=waiting)


@contextmanager
def weights(named: str, *, progress: Progress = silent) -> Iterator[Path]:
    """The file or folder that an engine loads; a stored version stays while this is open."""
    if not is_reference(named):
        yield find_model(named)
        return
    with model_store().in_use(named, progress=progress) as path:
        yield path


def shown_name(named: str) -> str:
    """What clients call a model where nobody says: its name in the store, else its file's."""
    if is_reference(named):
        return named.removeprefix(NAMED)
    return Path(named).stem.lower()


def stored(named: str | None) -> Version | None:
    """The version that a spec's model means; None where it means no version of the store."""
    return None if named is None or not is_reference(named) else model_store().find(named)


def told(named: str) -> str:
    """What a replica's command line says: the id of a version, or the path of anything else."""
    version = stored(named)
    return str(find_model(named)) if version is None else version.id


def size(named: str) -> tuple[int, bool]:
    """The bytes of a model, and whether it is one file (a GGUF). Copies nothing."""
    version = stored(named)
    if version is not None:
        return version.bytes, version.is_file
    path = find_model(named)
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return sum(one.stat().st_size for one in files), path.is_file()


def settled(spec: ModelSpec) -> ModelSpec:
    """The spec with the id of the version that it means, and that version's engine settings.

    What the spec sets itself comes before them. ModelError where they do not suit the engine.
    """
    version = stored(spec.model)
    if version is None or isinstance(spec.engine, UrlEngine):
        return spec
    own = spec.engine.model_dump(mode="json", exclude_unset=True)
    engine = {"kind": spec.engine.kind, **version.engine, **own}
    try:
        checked = ModelSpec.model_validate(
            {"name": spec.name, "model": version.id, "engine": engine}
        )
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"])
        problem = f"the version's {field}: {first['msg'].removeprefix('Value error, ')}"
        raise ModelError(problem, where=f"model {spec.name}") from error
    return spec.model_copy(update={"model": version.id, "engine": checked.engine})
