"""Whether a replica of a new version answers as it should: as its own reference, or the old one's.

A version that nobody made a reference of is to answer as the one that it replaces: most changes are
not meant to be heard. One that does is held to the same answers from then on, so that a reference
made once outlives every rollout; one that is meant to answer otherwise needs its own beforehand.
"""

from ridgeline.serving.control.rollouts import Likeness
from ridgeline.serving.control.versions import Version
from ridgeline.serving.evaluate.evaluate import evaluate
from ridgeline.serving.evaluate.reference import read, stored, write


async def is_alike(new: Version, old: Version, url: str, name: str) -> Likeness:
    """Compare the new version's replica at `url`, which calls the model `name`.

    Where neither has a reference there is nothing to hold it to. Raises SpecError: a reference
    cannot be read or written, or nobody answers.
    """
    own, before = stored(new.id), stored(old.id)
    if own.exists():
        compared = await evaluate(read(own), url, name)
        return compared.passed, compared.reason
    if not before.exists():
        return True, f"no reference of {new.id} or of {old.id} is stored"
    reference = read(before)
    compared = await evaluate(reference, url, name)
    if compared.passed:
        write(reference, own)
    return compared.passed, f"{compared.reason} (beside the reference of {old.id})"
