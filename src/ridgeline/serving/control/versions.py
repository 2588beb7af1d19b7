"""What of a model runs: its weights and how they are served. Immutable, named by what is in it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ridgeline.serving.spec import ModelSpec

_SHOWN = 12


class Version(NamedTuple):
    """`model` is as in a spec (a packaged name, a path, or `sha256:…` of the model store).

    `engine` has the engine's settings, each as its spec has it.
    """

    model: str | None
    engine: Mapping[str, Any]

    @property
    def id(self) -> str:
        """A short name that the same version always has, and no other one."""
        return hashlib.sha256(self.written().encode()).hexdigest()[:_SHOWN]

    def written(self) -> str:
        """As text, for a table."""
        return json.dumps({"model": self.model, "engine": dict(self.engine)}, sort_keys=True)

    def applied(self, spec: ModelSpec) -> ModelSpec:
        """The model's spec with this version in it. Raises pydantic's ValidationError."""
        told = {"name": spec.name, "model": self.model, "engine": dict(self.engine)}
        checked = ModelSpec.model_validate(told)
        return spec.model_copy(update={"model": checked.model, "engine": checked.engine})


def version_of(spec: ModelSpec) -> Version:
    """The version that a spec names."""
    return Version(spec.model, spec.engine.model_dump(mode="json"))


def read_version(text: str) -> Version:
    """One from `written`."""
    told = json.loads(text)
    return Version(told["model"], told["engine"])
