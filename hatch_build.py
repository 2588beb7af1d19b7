"""Compiles the kernels whenever a wheel or an editable install is made: hatchling calls this.

The law of this file: whoever has no compiler still gets a package. It gets zig's, from PyPI, for
the time of the build; with RIDGELINE_KERNELS=portable, or where there is none, a wheel for any
machine, whose engine computes with torch alone. A compiler that refuses our sources is an error.
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

ROOT = Path(__file__).resolve().parent


def _load_build() -> Any:
    name = "ridgeline_kernels_build"  # its dataclasses look their module up
    spec = importlib.util.spec_from_file_location(name, ROOT / "src/ridgeline/kernels/build.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class KernelsHook(BuildHookInterface[Any]):
    """Puts the library into the wheel, or into the source tree for an editable install."""

    def dependencies(self) -> list[str]:
        """What pip brings before the build: a compiler where there is none."""
        if _unwanted():
            return []
        build = _load_build()
        try:
            build.usable()
        except build.NoCompilerError:
            return ["ziglang>=0.13"]
        return []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name the kind of machine that the wheel is for."""
        del version
        if _unwanted():
            return
        build = _load_build()
        try:
            build.build()
        except build.NoCompilerError as error:
            self.app.display_warning(str(error))
            return
        build_data["artifacts"].append(build.LIBRARY.relative_to(ROOT).as_posix())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_machine()}"  # ctypes: any Python of this machine


def _unwanted() -> bool:
    return os.environ.get("RIDGELINE_KERNELS") == "portable"


def _machine() -> str:
    """The tag of this machine; not manylinux, which promises an older C library than ours."""
    platforms = (tag.platform for tag in sys_tags())
    return next(name for name in platforms if "linux_" not in name or name.startswith("linux_"))
