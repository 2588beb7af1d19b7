import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ridgeline.kernels import build

LEVEL = """
#define JOINED(a, b) a##b
#define VALUE(level) JOINED(level, _value)
extern const int VALUE(RL_LEVEL) =
#if defined(__AMX_TILE__)
    4;
#elif defined(__AVX512BF16__)
    3;
#elif defined(__AVX2__)
    2;
#else
    1;
#endif
"""
LIBRARY = """
#include "names.h"
#if defined(__AVX__)
#error compiled for some processors only
#endif
extern "C" __attribute__((visibility("default"))) int best() {
#if defined(RL_HAS_AMX)
    return amx_value;
#elif defined(RL_HAS_AVX512)
    return avx512_value;
#else
    return plain_value;
#endif
}
"""
NAMES = "extern const int plain_value, avx2_value, avx512_value, amx_value;\n"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    if not build.compilers():
        pytest.skip("no C++ compiler")
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "level.cpp").write_text(LEVEL)
    (folder / "library.cpp").write_text(LIBRARY)
    (folder / "names.h").write_text(NAMES)
    return folder


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return tmp_path / "made" / "library.so"


def test_each_level_is_compiled_with_its_flags_and_the_rest_for_any_processor(
    sources: Path, library: Path
):
    assert build.build(library, sources)
    known = build._levels(build.usable(), library.parent)
    value = {"plain": 1, "avx2": 1, "avx512": 3, "amx": 4}[known[-1]]
    assert ctypes.CDLL(str(library)).best() == value


def test_a_level_that_the_compiler_does_not_know_is_left_out(
    sources: Path, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    older = tmp_path / "older-compiler"
    older.write_text(
        '#!/bin/sh\ncase "$*" in *-mamx-tile*) echo "error: unknown argument" >&2; exit 1;; esac\n'
        f'exec {build.usable().command[0]} "$@"\n'
    )
    older.chmod(0o755)
    monkeypatch.setenv("CXX", str(older))
    assert build.build(library, sources)
    assert ctypes.CDLL(str(library)).best() < 4


def test_an_up_to_date_library_is_left_alone_until_any_source_changes(sources: Path, library: Path):
    assert build.build(library, sources)
    first = library.stat()
    assert not build.build(library, sources)
    after = library.stat()  # to be read may change its st_atime, and nothing else
    assert (after.st_ino, after.st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    with (sources / "names.h").open("a") as header:
        header.write("// another\n")
    assert build.build(library, sources)


def test_the_checked_library_is_another_one(sources: Path, library: Path):
    assert build.build(library, sources)
    assert build.build(library, sources, checked=True)
    assert b"asan" in library.read_bytes()


def test_a_refused_source_names_the_error_and_leaves_the_older_library(
    sources: Path, library: Path
):
    assert build.build(library, sources)
    older = library.read_bytes()
    (sources / "library.cpp").write_text("int broken() { return nothing; }\n")
    with pytest.raises(build.CompileError, match=r"library\.cpp.*'?nothing'?[\s\S]*try: another"):
        build.build(library, sources)
    assert library.read_bytes() == older
    assert list(library.parent.iterdir()) == [library]


def test_a_refused_source_leaves_no_half_made_library(sources: Path, library: Path):
    (sources / "library.cpp").write_text("#error no\n")
    with pytest.raises(build.CompileError):
        build.build(library, sources)
    assert list(library.parent.iterdir()) == []


def test_without_a_compiler_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    assert build.compilers() == []
    assert build.main(["--output", str(tmp_path / "library.so")]) == 1
    assert "none on PATH\n  try: install g++" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "problem"),
    [(None, "does not run"), ("[ $# = 1 ] || { echo 'error: too old' >&2; exit 1; }", "too old")],
)
def test_a_chosen_compiler_that_is_no_use_is_not_replaced_by_another(
    script: str | None, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    chosen = tmp_path / "compiler"
    if script is not None:
        chosen.write_text(f"#!/bin/sh\n{script}\n")
        chosen.chmod(0o755)
    monkeypatch.setenv("CXX", str(chosen))
    with pytest.raises(build.NoCompilerError, match=problem):
        build.usable()


def test_a_folder_that_cannot_be_written_is_an_error(sources: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(build.CompileError, match="try: a folder that you may write to"):
        build.build(tmp_path / "file" / "library.so", sources)


def test_it_runs_before_anything_is_installed():
    told = subprocess.run(
        [sys.executable, "-I", "-S", build.__file__, "--help"], capture_output=True, check=True
    )
    assert b"--sanitize" in told.stdout
