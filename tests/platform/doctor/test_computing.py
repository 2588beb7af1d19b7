import sys

import pytest

from ridgeline.kernels.library import library_path
from ridgeline.platform.doctor import computing
from ridgeline.platform.doctor.finding import Finding, Level
from ridgeline.spec import parse


def of(found: list[Finding], check: str) -> Finding:
    (one,) = [finding for finding in found if finding.check == check]
    return one


def test_torch_and_every_level_here_compute():
    found = computing.computing()
    assert of(found, "torch").level is Level.OK
    kernels = of(found, "kernels")
    if library_path().is_file():
        assert kernels.level is Level.OK
        assert "a step equals torch's" in kernels.said
    else:
        assert kernels.level is Level.WARNING


def test_kernels_that_are_cut_short_are_wrong(tmp_path, monkeypatch):
    if not library_path().is_file():
        pytest.skip("needs a C++ compiler: no kernels were built")
    torn = tmp_path / "torn.so"
    torn.write_bytes(library_path().read_bytes()[:5000])
    monkeypatch.setenv("RIDGELINE_KERNEL_LIBRARY", str(torn))
    found = [one for one in computing.computing() if one.level is Level.WRONG]
    assert found
    assert {one.check for one in found} == {"kernels"}
    assert found[0].said == "the kernels are cut short"


def test_kernels_that_this_machine_has_not_are_wrong(monkeypatch):
    monkeypatch.setenv("RIDGELINE_KERNELS", "quantum")
    found = [one for one in computing.computing() if one.level is Level.WRONG]
    assert [one.said for one in found] == ["this machine has no kernels 'quantum'"]


def test_no_kernels_are_a_warning():
    found = computing.judged([{"stage": "kernels", "levels": []}], "")
    assert [(one.check, one.level) for one in found] == [("kernels", Level.WARNING)]


def test_without_torch_the_engine_cannot_run(monkeypatch, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch today')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = of(computing.computing(), "torch")
    assert (found.level, found.said) == (Level.WARNING, "no torch today")


def test_torch_that_multiplies_wrongly_is_wrong():
    (found,) = computing.judged([{"stage": "torch", "version": "2", "right": False}], "")
    assert found.level is Level.WRONG


@pytest.mark.parametrize("difference", [0.01, float("nan")])
def test_a_level_that_computes_otherwise_is_wrong(difference):
    lines = [{"stage": "step", "level": "amx", "difference": difference}]
    (found,) = computing.judged(lines, "")
    assert found.level is Level.WRONG
    assert "level amx differs from torch's" in found.said
    assert found.remedy.startswith("export RIDGELINE_KERNELS=portable")


def test_a_self_test_that_dies_says_where_it_was():
    code = (
        "import os, signal\n"
        'print(\'{"stage": "step", "level": "avx512"}\', flush=True)\n'
        "os.kill(os.getpid(), signal.SIGILL)"
    )
    (found,) = computing.computing((sys.executable, "-c", code))
    assert found.level is Level.WRONG
    assert found.said == "the self-test was ended by SIGILL, at step avx512"


def test_a_self_test_that_hangs_is_wrong():
    code = 'print(\'{"stage": "torch"}\', flush=True); import threading; threading.Event().wait()'
    (found,) = computing.computing((sys.executable, "-c", code), within_s=1.0)
    assert found.said == "the self-test did not end in 1 s, at torch"


def test_a_self_test_that_raises_is_wrong():
    (found,) = computing.computing((sys.executable, "-c", "raise OSError('broken')"))
    assert found.said == "the self-test ended with status 1: OSError: broken, at its start"


def spec(most: int, threads: int):
    parts = f"engine: {{threads: {threads}}}, replicas: {{max: {most}}}"
    return parse(f"models: [{{name: a, model: m, {parts}}}]", name="p")


def test_threads_that_fit_are_right():
    assert computing.threads(spec(4, 2), 8).level is Level.OK
    assert computing.threads(spec(4, 0), 8).level is Level.OK


def test_more_threads_than_cores_are_a_warning():
    found = computing.threads(spec(4, 3), 8)
    assert found.level is Level.WARNING
    assert found.said == "12 threads of 4 replicas at most, 8 cores"


def program(folder, text: str) -> str:
    file = folder / "nvidia-smi"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def test_no_nvidia_smi_no_news():
    assert computing.gpus("no-such-program").level is Level.OK


def test_gpus_are_named(tmp_path):
    found = computing.gpus(program(tmp_path, "echo '0, NVIDIA H200, 143771 MiB, 550.54'"))
    assert (found.level, found.said) == (Level.OK, "GPU 0, NVIDIA H200, 143771 MiB, 550.54")


def test_a_driver_that_does_not_answer_is_wrong(tmp_path):
    failing = "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
    found = computing.gpus(program(tmp_path, failing))
    assert found.level is Level.WRONG
    assert "version mismatch" in found.said


def test_a_driver_that_hangs_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(computing, "_GPUS_S", 0.3)
    found = computing.gpus(program(tmp_path, "exec sleep 60"))
    assert (found.level, found.said) == (Level.WRONG, "nvidia-smi did not answer in 0.3 s")


def test_a_driver_without_gpus_is_a_warning(tmp_path):
    assert computing.gpus(program(tmp_path, "true")).level is Level.WARNING
