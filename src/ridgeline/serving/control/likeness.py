"""Whether a replica answers as the reference of its version does."""

from ridgeline.serving.control.rollouts import Likeness
from ridgeline.serving.control.versions import Version
from ridgeline.serving.evaluate.evaluate import evaluate
from ridgeline.serving.evaluate.reference import read, stored


async def is_alike(version: Version, url: str, name: str) -> Likeness:
    """Compare the replica at `url`, which calls the model `name`, with the version's reference.

    Where none is stored there is nothing to hold it to. Raises SpecError: the reference cannot be
    read, or nobody answers.
    """
    path = stored(version.id)
    if not path.exists():
        return True, f"no reference of {version.id} is stored"
    compared = await evaluate(read(path), url, name)
    return compared.passed, compared.reason
