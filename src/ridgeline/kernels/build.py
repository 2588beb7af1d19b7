"""Compiles `native/*.cpp` to the library that `library` loads; `hatch_build.py` and make call it.

The law of this file: the standard library only, since it runs before anything is installed, by path
(`python src/ridgeline/kernels/build.py`) or as a module. A library that holds the digest of today's
sources, flags and compiler is up to date; another one is replaced in a single step or not at all.

`level.cpp` is compiled once for each level that the compiler knows, with RL_LEVEL=avx2 and so on;
the other files once, for any processor, with RL_HAS_AVX2 and so on for the levels that there are.
"""

import argparse
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "native"
LIBRARY = SOURCES / ("libridgeline.dylib" if sys.platform == "darwin" else "libridgeline.so")

# Not -ffast-math: a NaN stays one and -inf means never.
_FLAGS = [
    *("-std=c++20", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wno-psabi"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
]
_FAST = ["-O3"]
# At -O3 the checks of unrolled loops take minutes to compile. GCC fuses multiply-adds only with
# expensive optimisations, and rounding as often as that is what int8 models are compared by.
_CHECKED = [
    *("-O1", "-fexpensive-optimizations", "-g", "-fno-omit-frame-pointer"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
]

_AVX2 = ["-mavx2", "-mfma"]
_AVX512 = [*_AVX2, *(f"-mavx512{part}" for part in ("f", "bw", "dq", "vl", "vnni", "bf16"))]
_AMX = [*_AVX512, "-mamx-tile", "-mamx-bf16", "-mamx-int8"]
LEVELS = {"plain": [], "avx2": _AVX2, "avx512": _AVX512, "amx": _AMX}
"""The flags of each level; all but the first are x86-64's."""

# What the sources need of a compiler and its library: C++20 with atomics that wait, and linking.
_PROBE = """
#include <atomic>
extern "C" void probe(std::atomic<int>* value) { value->wait(0); }
"""
# Only `build` reads it, from the library's file.
_DIGEST = """
extern "C" { __attribute__((visibility("default"), used)) char ridgeline_digest[] = "%s"; }
"""


class NoCompilerError(Exception):
    """No C++ compiler that the sources can be compiled with; the portable path serves."""


class CompileError(Exception):
    """The compiler refused a source, or the library could not be written."""


@dataclass(frozen=True)
class Compiler:
    """A compiler's command line, and what it says its version is."""

    command: tuple[str, ...]
    version: str

    def run(self, *arguments: str | Path) -> str:
        """Returns what it complained of, empty if it succeeded."""
        done = subprocess.run(
            [*self.command, *map(str, arguments)], capture_output=True, text=True, check=False
        )
        return "" if done.returncode == 0 else done.stderr or f"exit status {done.returncode}"


def compilers() -> list[Compiler]:
    """What may serve, best first: $CXX alone if it is set, else those on PATH, else ziglang's."""
    if chosen := os.environ.get("CXX"):
        commands = [tuple(shlex.split(chosen))]
    else:
        commands = [(name,) for name in ("c++", "g++", "clang++") if shutil.which(name)]
        if importlib.util.find_spec("ziglang"):
            # Otherwise zig compiles for this machine's processor, and the library is not only its.
            commands.append((sys.executable, "-m", "ziglang", "c++", "-mcpu=baseline"))
    found = []
    for command in commands:
        try:
            told = subprocess.run(
                [*command, "--version"], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        found.append(Compiler(command, told.stdout))
    return found


def usable() -> Compiler:
    """The first compiler that can do C++20 and link. Raises NoCompilerError if none can."""
    problem = f"CXX={os.environ['CXX']} does not run" if os.environ.get("CXX") else "none on PATH"
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "probe.cpp")
        probe.write_text(_PROBE)
        for compiler in compilers():
            complaint = compiler.run(*_FLAGS, "-shared", probe, "-o", Path(folder, "probe.so"))
            if not complaint:
                return compiler
            problem = f"{compiler.command[0]} fails at C++20: {_shortened(complaint, 3)}"
    raise NoCompilerError(
        f"no C++ compiler: {problem}\n"
        "  try: install g++ 11 or clang 14 or newer, or `pip install ziglang`, or set CXX;"
        " without one the slower portable path serves"
    )


def build(library: Path = LIBRARY, sources: Path = SOURCES, *, checked: bool = False) -> bool:
    """Makes `library` up to date; whether there was anything to do.

    `checked` puts the address and undefined-behaviour sanitizers in. Raises NoCompilerError, or
    CompileError with what the compiler said; then an older library is left as it was.
    """
    flags = [*_FLAGS, *(_CHECKED if checked else _FAST)]
    files = sorted(path for path in sources.iterdir() if path.suffix in {".cpp", ".h"})
    digests = {compiler: _digest(files, flags, compiler) for compiler in compilers()}
    present = library.read_bytes() if library.exists() else b""
    if any(digest.encode() in present for digest in digests.values()):
        return False
    compiler = usable()
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=library.parent) as folder:
            made = Path(folder, library.name)
            _compile(compiler, files, flags, digests[compiler], made)
            made.replace(library)
    except OSError as error:
        raise CompileError(f"{library}: {error}\n  try: a folder that you may write to") from None
    return True


def _digest(files: Sequence[Path], flags: Sequence[str], compiler: Compiler) -> str:
    text = [repr((compiler.command, compiler.version, flags, LEVELS, platform.machine()))]
    text += [f"{path.name}\n{path.read_text(encoding='utf-8')}" for path in files]
    return hashlib.sha256("\0".join(text).encode()).hexdigest()


@dataclass(frozen=True)
class _Job:
    """One run of the compiler, with flags beside those that all share."""

    source: Path
    object: Path
    own: list[str]


def _compile(
    compiler: Compiler, files: Sequence[Path], flags: Sequence[str], digest: str, made: Path
) -> None:
    folder = made.parent
    levels = _levels(compiler, folder)
    present = [f"-DRL_HAS_{level.upper()}" for level in levels]
    digest_file = folder / "digest.cpp"
    digest_file.write_text(_DIGEST % digest)
    jobs = [_Job(digest_file, folder / "digest.o", [])]
    for source in (path for path in files if path.suffix == ".cpp"):
        if source.stem == "level":
            for level in reversed(levels):  # the longest to compile first
                own = [*LEVELS[level], f"-DRL_LEVEL={level}"]
                jobs.append(_Job(source, folder / f"level-{level}.o", own))
        else:
            jobs.append(_Job(source, folder / f"{source.stem}.o", present))
    for job, complaint in zip(jobs, _run(compiler, jobs, flags), strict=True):
        if complaint:
            raise CompileError(_refusal(compiler, job.source.name, job.own, complaint))
    objects = [job.object for job in jobs]
    if complaint := compiler.run(*flags, "-shared", *objects, "-o", made):
        raise CompileError(_refusal(compiler, made.name, [], complaint))


def _levels(compiler: Compiler, folder: Path) -> list[str]:
    """The levels whose flags this compiler takes for this machine's kind of processor."""
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return ["plain"]
    empty = folder / "empty.cpp"
    empty.write_text("")
    jobs = [_Job(empty, folder / f"empty-{name}.o", own) for name, own in LEVELS.items()]
    complaints = _run(compiler, jobs, [])
    return [name for name, complaint in zip(LEVELS, complaints, strict=True) if not complaint]


def _run(compiler: Compiler, jobs: Sequence[_Job], flags: Sequence[str]) -> list[str]:
    """What the compiler complained of in each job; as many at once as there are processors."""

    def compile_one(job: _Job) -> str:
        return compiler.run(*flags, *job.own, "-c", job.source, "-o", job.object)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(compile_one, jobs))


def _refusal(compiler: Compiler, name: str, own: Sequence[str], complaint: str) -> str:
    version = compiler.version.partition("\n")[0]
    flags = f" ({own[-1]})" if own else ""
    return (
        f"{name}{flags}: {_shortened(complaint, 12)}\n"
        f"  try: another compiler than {version or compiler.command[0]} by CXX=..."
    )


def _shortened(complaint: str, lines: int) -> str:
    """Its first errors; a C++ compiler can say much more than anybody reads."""
    told = complaint.strip().splitlines()
    first = next((at for at, line in enumerate(told) if "error" in line), 0)
    return "\n".join(told[first : first + lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0: the library is up to date; 1: no compiler, which a caller may tolerate; 2."""
    parser = argparse.ArgumentParser(description="compile Ridgeline's kernels")
    parser.add_argument("--output", type=Path, default=LIBRARY, metavar="FILE")
    parser.add_argument("--sanitize", action="store_true", help="with the sanitizers put in")
    options = parser.parse_args(arguments)
    try:
        if build(options.output, checked=options.sanitize):
            print(f"compiled {options.output.name}")
    except NoCompilerError as error:
        print(error, file=sys.stderr)
        return 1
    except CompileError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
