"""Which environment the engine process must be started in, where torch computes in it.

The law of this file: it imports no torch, since it runs in the process that starts the engine. The
compiled kernels need none of this; weights are loaded, and the portable kernels run, with torch.
"""

import os

# How often a waiting OpenMP thread looks before it sleeps: about 50 microseconds, longer than the
# gap between two products. Its own choice is longer than a time slice, so that beside any other
# busy process a step waits out slice after slice (decisions/0007: 2 s instead of 0.1 s).
_SPINS = "1000"
# For each number of rows they have met, oneDNN keeps compiled code and torch's binding to it a
# description, a quarter to half a megabyte each. Their own limits of 1,024 entries let an engine
# under mixed load grow by half a gigabyte; with 64 a step takes as long.
_ENTRIES = "64"
_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def engine_environment() -> dict[str, str]:
    """Variables to add to the engine process's own; none that the user has set."""
    found = {cache: _ENTRIES for cache in _CACHES if cache not in os.environ}
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        found["GOMP_SPINCOUNT"] = _SPINS
    return found
