"""Which environment the engine process must be started in: one pool of threads, that can wait.

The law of this file: it imports neither torch nor numba, since it runs in the process that starts
the engine. Two pools on the same cores would spin against each other between a matrix product and
the next kernel (decisions/0007).
"""

import importlib.util
import os
import sys
from pathlib import Path

from ridgeline.paths import cache_home

# How often a waiting thread looks before it sleeps: about 50 microseconds, longer than the gap
# between two kernels. OpenMP's own choice is longer than a time slice, so that beside any other
# busy process a step waits out slice after slice (decisions/0007: 2 s instead of 0.1 s).
_SPINS = "1000"
# For each number of rows they have met, oneDNN keeps compiled code and torch's binding to it a
# description, a quarter to half a megabyte each. Their own limits of 1,024 entries let an engine
# under mixed load grow by half a gigabyte; with 64 a step takes as long.
_ENTRIES = "64"
_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
# The name under which numba's threads look for OpenMP, and torch's wheels do not carry it.
_WANTED = "libgomp.so.1.0.0"


def engine_environment() -> dict[str, str]:
    """Variables to add to the engine process's own; on other systems than Linux what is safe.

    On Linux matrix products and kernels share the OpenMP library that torch brings (a minimal
    image has no other). Elsewhere numba keeps a pool of its own: two copies of an OpenMP
    runtime in one process end it on macOS.
    """
    found = {cache: _ENTRIES for cache in _CACHES if cache not in os.environ}
    if not sys.platform.startswith("linux"):
        return found | {"NUMBA_THREADING_LAYER": "workqueue"}
    found["NUMBA_THREADING_LAYER_PRIORITY"] = "omp workqueue tbb"
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        found["GOMP_SPINCOUNT"] = _SPINS
    folder = _openmp_folder()
    if folder is not None:
        paths = [str(folder), os.environ.get("LD_LIBRARY_PATH", "")]
        found["LD_LIBRARY_PATH"] = os.pathsep.join(path for path in paths if path)
    return found


def _openmp_folder() -> Path | None:
    """A folder in which torch's OpenMP library has the name that numba asks for.

    The loader recognises a file that it has already mapped, so this never loads a second copy.
    None where torch brings no such library, or no folder can be written.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    libraries = sorted((Path(spec.origin).parent / "lib").glob("libgomp*.so*"))
    if not libraries:
        return None
    # One folder a library: two installations of torch do not change each other's link.
    stat = libraries[0].stat()
    folder = cache_home() / "openmp" / f"{stat.st_dev:x}-{stat.st_ino:x}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _link(folder / _WANTED, libraries[0])
    except OSError:
        return None
    return folder


def _link(link: Path, target: Path) -> None:
    """Make `link` lead to `target`, also while another process does the same."""
    if link.exists() and link.samefile(target):
        return
    fresh = link.with_name(f"{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)
