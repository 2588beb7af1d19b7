"""A request as an engine sees it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Work:
    """`hashes` name its full blocks, those of its answer too.

    It brings the cache of its first `brought` tokens with it. Its `adapter` has to be loaded before
    it can run; "" is the base model.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    hashes: Sequence[bytes] = ()
    priority: int = 0
    brought: int = 0
    adapter: str = ""
    tenant: str = ""
