"""Somebody else's engine beside ours behind one gateway, from one platform.yaml.

With a stand-in for vLLM always; with vLLM itself (its CPU build, `python bench/peers.py vllm-cpu`)
among the slow tests.
"""

import json
import os
import re
import signal

import psutil
import pytest

import peers
import stand_in_server
from hf_model import hf_folder
from launches import vllm_cpu_launch
from peer_home import folder

WAIT_S = 60
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def written(tmp_path, theirs, ours):
    """A platform.yaml with both (JSON is YAML)."""
    spec = tmp_path / "platform.yaml"
    spec.write_text(json.dumps({"name": "two", "models": [ours, theirs]}))
    return spec


def answer(up, model):
    told = up.client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=16, temperature=0
    )
    return told.choices[0].message.content or ""


def below(up):
    """All processes of the platform, without its first."""
    return psutil.Process(up.process.pid).children(recursive=True)


def program(up):
    """The one that the shim started."""
    return next(one for one in below(up) if "serve" in one.cmdline()[:3])


def left(processes):
    psutil.wait_procs(processes, timeout=WAIT_S)
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def said_until(up, words):
    """What it prints until a line with these words."""
    assert up.process.stdout is not None
    lines = []
    for line in up.process.stdout:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError(f"it ended:\n{''.join(lines)}")


def survives(up):
    """Its server is killed and comes back, while ours goes on answering; then all of it is."""
    assert re.search(r"ready +theirs-0 +vllm +process .* import .* weights .* warm-up ", up.banner)
    assert answer(up, "theirs")
    first = program(up)
    family = [first, *first.children(recursive=True)]
    os.kill(first.pid, signal.SIGKILL)
    assert "theirs-0" in said_until(up, "died")
    assert answer(up, "ours")
    assert left(family) == []
    assert "vllm" in said_until(up, "ready")
    assert answer(up, "theirs")
    second = program(up)
    assert second.pid != first.pid
    everything = below(up)
    assert len(everything) > 4
    os.kill(up.process.pid, signal.SIGKILL)
    assert left(everything) == []


@pytest.fixture
def stand_in(tmp_path):
    path = stand_in_server.executable(tmp_path)
    return {"name": "theirs", "model": "m", "engine": {"kind": "vllm", "command": str(path)}}


FAKE = {"name": "ours", "engine": {"kind": "fake"}}


def test_a_server_is_brought_back_and_nothing_outlives_the_platform(start_up, tmp_path, stand_in):
    up = start_up(str(written(tmp_path, stand_in, FAKE)), state=tmp_path / "state")
    survives(up)


def test_ctrl_c_leaves_nothing(start_up, tmp_path, stand_in):
    up = start_up(str(written(tmp_path, stand_in, FAKE)), state=tmp_path / "state")
    everything = below(up)
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(WAIT_S) == 0
    assert left(everything) == []


@pytest.fixture
def vllm():
    if not peers.installed_versions("vllm-cpu"):
        pytest.skip("vLLM is not here: python bench/peers.py vllm-cpu")
    engine = {
        "kind": "vllm",
        "command": str(folder("vllm-cpu") / "bin" / "vllm"),
        "dtype": "bf16",
        "max_model_len": 512,
        "max_seqs": 8,
        "args": ["--enforce-eager"],
        "env": {**vllm_cpu_launch().env, "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"},
    }
    return {"name": "theirs", "model": str(hf_folder()), "engine": engine}


@pytest.mark.slow
def test_vllm_serves_beside_ours_comes_back_and_leaves_nothing(
    start_up, tmp_path, vllm, default_model
):
    ours = {"name": "ours", "model": default_model, "engine": {"threads": 1, "kv_cache": "100MB"}}
    up = start_up(str(written(tmp_path, vllm, ours)), state=tmp_path / "state")
    assert "Paris" in answer(up, "ours")
    assert "Paris" in answer(up, "theirs")
    survives(up)
