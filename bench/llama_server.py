"""Builds llama.cpp's server as a peer, from the source that the llama-cpp-python sdist carries.

Law of this file: built for this very processor (`-march=native`; each kind of processor has a build
folder of its own), from a pinned source, with nothing downloaded at build time; a build that was
broken off goes on where it was. The model files are our own default GGUF, requantised once by its
own tool, so that all files go back to the same weights. `bench/peers.py llama-server` calls it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import venv
from pathlib import Path

from hf_model import default_gguf
from peer_home import command_output, folder, pip, recorded, write_record
from ridgeline.errors import LaunchError
from rows import hardware, say, usable_cores

NAME = "llama-server"
SDIST = "llama-cpp-python"
VERSION = "0.3.36"
TOOLS = ("cmake==3.31.10", "ninja==1.11.1.4")
QUANTS = ("BF16", "Q8_0")
TARGETS = ("llama-server", "llama-quantize")
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "GGML_NATIVE": "ON",
    "BUILD_SHARED_LIBS": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_CURL": "OFF",
    "LLAMA_OPENSSL": "OFF",
}
# gcc takes the tile configuration for a load of eight bytes, drops the stores to the other 56, and
# on processors with AMX the next tile instruction is an illegal one (llama.cpp's PR 26954).
FIXED = Path("ggml/src/ggml-cpu/amx/mmq.cpp")
LOADED = "    _tile_loadconfig(&tc);\n"
STORED_FIRST = '    __asm__ volatile("" : : "r"(&tc) : "memory");\n'
COMPILER = "apt-get install g++, or another C++17 compiler in $CXX"


def processor() -> str:
    """Names this processor by its model and what it can do: a binary may not run on another."""
    told = hardware()
    known = json.dumps([told["cpu"], told["cpu_flags"]])
    return hashlib.blake2b(known.encode(), digest_size=4).hexdigest()


def build_folder() -> Path:
    """Where this processor's binaries are, once built."""
    return folder(NAME) / f"build-{processor()}"


def server_binary() -> Path:
    """The server, once built."""
    return build_folder() / "bin" / "llama-server"


def model_file(quant: str) -> Path:
    """The default model in one of `QUANTS`, once converted."""
    return folder(NAME) / f"smollm2-135m-{quant}.gguf"


def built_versions() -> dict[str, str]:
    """What was built, if it is this version and for this processor; else empty."""
    versions = recorded(NAME)
    whole = versions.get(SDIST) == VERSION and versions.get("processor") == processor()
    return versions if whole else {}


def unpack(sdist: Path, source: Path) -> None:
    """The llama.cpp tree of the sdist, as `source`. Raises LaunchError when there is none."""
    inside = f"{sdist.name.removesuffix('.tar.gz')}/vendor/llama.cpp/"
    torn = source.with_suffix(".part")
    shutil.rmtree(torn, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        wanted = [m for m in archive.getmembers() if m.name.startswith(inside)]
        for member in wanted:
            member.name = member.name.removeprefix(inside)
        archive.extractall(torn, wanted, filter="data")
    if not (torn / "CMakeLists.txt").is_file():
        raise LaunchError(
            "the sdist carries no llama.cpp",
            where=sdist.name,
            remedy=f"the pinned version {VERSION} has it under vendor/llama.cpp",
        )
    torn.rename(source)


def _fetch(home: Path, source: Path) -> None:
    say(f"fetching the source of {SDIST} {VERSION} (77 MB) ...")
    pip(home, "install", "--quiet", *TOOLS)
    get = ("download", "--quiet", "--no-deps", "--no-binary", SDIST, "--dest", str(home))
    pip(home, *get, f"{SDIST}=={VERSION}")
    sdist = next(home.glob("*.tar.gz"))
    unpack(sdist, source)
    sdist.unlink()


def fix(source: Path) -> None:
    """Keeps the compiler from dropping the tile configuration; nothing if that was done.

    Raises LaunchError where the place is not there.
    """
    text = (source / FIXED).read_text()
    if STORED_FIRST in text:
        return
    if text.count(LOADED) != 1:
        raise LaunchError(
            "the place to fix is not there",
            where=str(FIXED),
            remedy=f"the fix is for {SDIST} {VERSION}: a newer version may not need it",
        )
    (source / FIXED).write_text(text.replace(LOADED, STORED_FIRST + LOADED))


def _compile(home: Path, source: Path) -> None:
    """Configures and builds; what the compiler says goes to `build.log`."""
    compilers = (os.environ.get("CXX", "c++"), "g++", "clang++")
    if not any(shutil.which(compiler) for compiler in compilers):
        raise LaunchError("there is no C++ compiler", where=NAME, remedy=COMPILER)
    cmake, build = str(home / "bin" / "cmake"), build_folder()
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={home / 'bin' / 'ninja'}"]
    settings = [f"-D{key}={value}" for key, value in OPTIONS.items()]
    command_output(
        [cmake, "-S", str(source), "-B", str(build), *generator, *settings],
        what="cmake",
        remedy=f"read cmake's message above; {COMPILER}",
    )
    jobs = usable_cores()
    say(f"building {' and '.join(TARGETS)} with {jobs} job(s): about 40 core-minutes ...")
    run = [cmake, "--build", str(build), "--parallel", str(jobs), "--target", *TARGETS]
    log = home / "build.log"
    with log.open("wb") as out:
        failed = subprocess.run(run, stdout=out, stderr=subprocess.STDOUT).returncode
    if failed:
        said = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise LaunchError(f"the build failed\n{said}", where=str(log))


def _convert(quant: str) -> None:
    """The default model in another type: weights are widened to fp32, then rounded to `quant`."""
    tool = str(build_folder() / "bin" / "llama-quantize")
    torn = model_file(quant).with_suffix(".part")
    command_output(
        [tool, "--allow-requantize", str(default_gguf()), str(torn), quant],
        what="llama-quantize",
        remedy="read its message above; the default model must be a whole GGUF",
    )
    torn.rename(model_file(quant))


def build() -> dict[str, str]:
    """Fetches, builds and converts unless that was done; returns the versions.

    Raises LaunchError, and the next call goes on where this one stopped.
    """
    there = built_versions()
    if there:
        return there
    home = folder(NAME)
    source = home / f"source-{VERSION}"
    if not source.is_dir():
        venv.create(home, clear=True, with_pip=True)
        _fetch(home, source)
    fix(source)
    _compile(home, source)
    for quant in QUANTS:
        if not model_file(quant).is_file():
            _convert(quant)
    tools = dict(tool.split("==") for tool in TOOLS)
    packages = {SDIST: VERSION, NAME: _version(), "processor": processor(), **tools}
    write_record(NAME, packages)
    return packages


def _version() -> str:
    """The version that the server itself prints, first line after `version:`."""
    done = subprocess.run([str(server_binary()), "--version"], capture_output=True, text=True)
    lines = (done.stdout + done.stderr).splitlines()
    said = next((line for line in lines if line.startswith("version:")), "version: unknown")
    return said.removeprefix("version:").strip()
