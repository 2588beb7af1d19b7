"""A compiled copy of the package, for long simulations: the same source, its inner loops by mypyc.

    python bench/compiled.py        # makes or renews it and says how to use it

Law of this file: the copy is a folder of its own, `build/compiled`, and nothing of it is ever found
unless PYTHONPATH says so; so no process runs a compiled policy that does not know it. It is made
anew when any source has changed. decisions/0026 has what it gains, and why it is not the default.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from peer_home import ROOT
from ridgeline.errors import LaunchError

HOME = ROOT / "build" / "compiled"
SOURCE = ROOT / "src" / "ridgeline"
#: Where a simulation spends its time.
MODULES = (
    *(
        f"serving/policy/{name}"
        for name in (
            *("admit", "batch", "blocks", "classes", "failures", "fair", "limits", "pool"),
            *("prefill_rate", "prefix", "route", "route_rules", "route_view", "runs", "sequence"),
            *("split", "states", "step", "sticky", "vtc"),
        )
    ),
    *(
        f"serving/simulate/{name}"
        for name in (
            *("accounts", "asked", "chances", "front", "gaps", "log", "pace", "ranks"),
            *("replica", "virtual_engine"),
        )
    ),
    *("timeline", "physics/straight_steps"),
)
_BUILD = """
import sys
from mypyc.build import mypycify
from setuptools import setup
files = sys.argv[1:]
sys.argv = ["setup.py", "-q", "build_ext", "--inplace"]
setup(name="ridgeline-compiled", ext_modules=mypycify(files, opt_level="3"))
"""
_DIGEST = "digest.txt"


def build() -> Path:
    """The copy's folder, for PYTHONPATH; made where it is missing or not of today's source.

    Raises LaunchError where it cannot be: no compiler, no mypyc, or a source it does not take.
    """
    digest = _digest()
    stamp = HOME / _DIGEST
    if stamp.is_file() and stamp.read_text() == digest:
        return HOME
    shutil.rmtree(HOME, ignore_errors=True)
    shutil.copytree(SOURCE, HOME / "ridgeline", ignore=shutil.ignore_patterns("__pycache__"))
    files = [f"ridgeline/{name}.py" for name in MODULES]
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, *files],
        cwd=HOME,
        env=os.environ | {"MYPYPATH": str(HOME), "PYTHONPATH": str(HOME)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise LaunchError(
            f"mypyc could not compile: {(done.stdout + done.stderr).strip()[-800:]}",
            where="bench/compiled.py",
            remedy="it needs a C compiler, Python's headers, mypy and setuptools",
        )
    stamp.write_text(digest)
    return HOME


def _digest() -> str:
    """Of all sources and of the interpreter."""
    found = hashlib.blake2b(f"{sys.version} {MODULES}".encode())
    for path in sorted(SOURCE.rglob("*.py")):
        found.update(str(path.relative_to(SOURCE)).encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def main() -> int:
    """Builds; 2 where that is not possible."""
    began_s = time.monotonic()
    try:
        home = build()
    except LaunchError as error:
        print(f"compiled: {error}", file=sys.stderr)
        return 2
    print(f"{len(MODULES)} modules, {time.monotonic() - began_s:.0f} s. To use it:")
    print(f"  PYTHONPATH={os.path.relpath(home)} ridgeline simulate serving …")
    return 0


if __name__ == "__main__":
    sys.exit(main())
