import io
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))  # scripts, not a package

import llama_server
import peer_home
import peers
from ridgeline.errors import LaunchError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(peer_home, "PEERS_DIR", tmp_path)
    (tmp_path / llama_server.NAME).mkdir()
    return tmp_path / llama_server.NAME


def sdist(folder: Path, *files: str) -> Path:
    packed = folder / "llama_cpp_python-1.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        for name in files:
            member = tarfile.TarInfo(f"llama_cpp_python-1/{name}")
            member.size = 4
            archive.addfile(member, io.BytesIO(b"text"))
    return packed


def test_of_the_sdist_only_llama_cpp_is_unpacked(tmp_path: Path) -> None:
    packed = sdist(tmp_path, "setup.py", "vendor/llama.cpp/CMakeLists.txt", "vendor/llama.cpp/a/b")
    llama_server.unpack(packed, tmp_path / "source")
    found = [p.relative_to(tmp_path / "source") for p in (tmp_path / "source").rglob("*")]
    assert sorted(map(str, found)) == ["CMakeLists.txt", "a", "a/b"]


def test_an_sdist_without_the_source_is_told_and_leaves_no_source(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"carries no llama\.cpp"):
        llama_server.unpack(sdist(tmp_path, "setup.py"), tmp_path / "source")
    assert not (tmp_path / "source").exists()


def test_a_finished_build_is_not_repeated_on_the_same_processor(home: Path) -> None:
    made = {
        llama_server.SDIST: llama_server.VERSION,
        llama_server.NAME: "1",
        "processor": llama_server.processor(),
    }
    peer_home.write_record(llama_server.NAME, made)
    assert llama_server.build() == made
    assert peers.main([llama_server.NAME]) == 0


@pytest.mark.parametrize("other", [{"processor": "elsewhere"}, {llama_server.SDIST: "0.1"}])
def test_another_processor_or_version_builds_anew(home: Path, other: dict[str, str]) -> None:
    made = {llama_server.SDIST: llama_server.VERSION, "processor": llama_server.processor()}
    peer_home.write_record(llama_server.NAME, made | other)
    assert llama_server.built_versions() == {}


def test_without_a_compiler_the_remedy_is_told_before_anything_is_configured(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / f"source-{llama_server.VERSION}").mkdir()
    monkeypatch.setattr(llama_server, "fix", lambda source: None)
    monkeypatch.setattr(llama_server.shutil, "which", lambda name: None)
    with pytest.raises(LaunchError, match="no C\\+\\+ compiler"):
        llama_server.build()


def test_the_processor_is_more_than_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"cpu": "Some Processor", "cpu_flags": ["avx2"]}
    monkeypatch.setattr(llama_server, "hardware", lambda: told)
    before = llama_server.processor()
    told["cpu_flags"] = ["avx2", "avx512f"]
    assert llama_server.processor() != before


def test_the_fix_is_made_once_and_a_source_without_its_place_is_refused(tmp_path: Path) -> None:
    place = tmp_path / llama_server.FIXED
    place.parent.mkdir(parents=True)
    place.write_text(f"x\n{llama_server.LOADED}y\n")
    llama_server.fix(tmp_path)
    llama_server.fix(tmp_path)
    assert place.read_text() == f"x\n{llama_server.STORED_FIRST}{llama_server.LOADED}y\n"
    place.write_text("something else")
    with pytest.raises(LaunchError, match="the place to fix is not there"):
        llama_server.fix(tmp_path)
