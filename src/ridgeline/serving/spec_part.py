"""What every part of platform.yaml is: immutable, and it knows all of its keys."""

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A part of the spec: immutable, and it knows all of its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
