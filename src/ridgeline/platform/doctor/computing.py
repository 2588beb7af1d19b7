"""What computes: torch, the compiled kernels, cores against threads, GPUs."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ridgeline.launch.local import cores
from ridgeline.platform.doctor.finding import Finding, right, warning, wrong
from ridgeline.serving.spec import RidgelineEngine
from ridgeline.spec import Platform

_SELFTEST = (sys.executable, "-m", "ridgeline.platform.doctor.selftest")
_SELFTEST_S = 120.0
_GPUS_S = 20.0
#: How far a step at a level may be from torch's: sums in another order, nothing else.
_NEAR = 1e-4
_AGAIN = "pip install --force-reinstall ridgeline (make setup in a checkout)"


def computing(command: Sequence[str] = _SELFTEST, within_s: float = _SELFTEST_S) -> list[Finding]:
    """Torch and the kernels, tried in a process of their own since they can end it."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=within_s
        )
    except subprocess.TimeoutExpired as error:
        heard = error.stdout.decode() if isinstance(error.stdout, bytes) else ""
        return judged(_lines(heard), f"did not end in {within_s:g} s")
    return judged(_lines(done.stdout), _ended(done.returncode, done.stderr))


def _ended(status: int, complaint: str) -> str:
    """Why the process did not do all; empty where it did."""
    if status == 0:
        return ""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    last = complaint.strip().rpartition("\n")[2]
    return f"ended with status {status}: {last}"


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def judged(lines: Sequence[dict[str, Any]], ended: str) -> list[Finding]:
    """What the lines of the self-test mean; `ended` says why they break off, if they do."""
    found: list[Finding] = []
    differences: dict[str, float] = {}
    chosen = ""
    for line in lines:
        match line:
            case {"stage": "kernels", "problem": problem, "remedy": remedy}:
                found.append(wrong("kernels", problem, "the engine does not start", remedy))
            case {"stage": "kernels", "levels": []}:
                found.append(_not_compiled())
            case {"stage": "torch", "missing": missing}:
                found.append(_no_torch(missing))
            case {"stage": "torch", "version": version, "right": True, "threads": threads}:
                said = f"torch {version} computes, {threads} threads"
                found.append(right("torch", said))
            case {"stage": "torch", "right": False}:
                means = "no answer of this machine can be believed"
                remedy = "pip install --force-reinstall torch"
                found.append(wrong("torch", "torch multiplies wrongly", means, remedy))
            case {"stage": "choice", "problem": problem, "remedy": remedy}:
                found.append(wrong("kernels", problem, "the engine does not start", remedy))
            case {"stage": "choice", "kernels": level}:
                chosen = level
            case {"stage": "step", "level": level, "difference": difference}:
                differences[level] = difference
    found += _steps(differences, chosen)
    if ended:
        found.append(_broke_off(lines[-1] if lines else {}, ended))
    return found


def _steps(differences: dict[str, float], chosen: str) -> Iterator[Finding]:
    for level, difference in differences.items():
        if not difference <= _NEAR:  # also where it is no number
            said = f"a step at level {level} differs from torch's by {difference:.1e}"
            means = "answers that use it are wrong"
            yield wrong("kernels", said, means, f"export RIDGELINE_KERNELS=portable, then {_AGAIN}")
    if differences and all(one <= _NEAR for one in differences.values()):
        most = max(differences.values())
        others = ", ".join(level for level in differences if level != chosen)
        also = f" (also here: {others})" if others else ""
        yield right(
            "kernels", f"compiled, level {chosen}{also}; a step equals torch's to {most:.0e}"
        )


def _not_compiled() -> Finding:
    return warning(
        "kernels",
        "the kernels are not compiled",
        "the portable path serves: the same answers, slower",
        "install g++ 11 or clang 14 or newer, then pip install . again (make setup in a checkout)",
    )


def _no_torch(missing: str) -> Finding:
    means = "Ridgeline's engine cannot run; gateway, plans and fake replicas can"
    return warning("torch", missing, means, "pip install 'ridgeline[engine]'")


def _broke_off(last: dict[str, Any], ended: str) -> Finding:
    where = " ".join(str(last[key]) for key in ("stage", "level") if key in last) or "its start"
    means = "what comes after that was not tried, and the engine would end so too"
    remedy = _AGAIN
    if last.get("stage") == "step":
        remedy = f"export RIDGELINE_KERNELS=portable, then {_AGAIN}"
    return wrong("self-test", f"the self-test {ended}, at {where}", means, remedy)


def threads(platform: Platform, count: int | None = None) -> Finding:
    """Whether all replicas together take more threads than there are cores."""
    have = cores() if count is None else count
    ours = [one for one in platform.models if isinstance(one.engine, RidgelineEngine)]
    most = sum(one.replicas.most for one in ours)
    share = max(1, have // max(1, most))
    wanted = sum(
        (one.engine.threads or share) * one.replicas.most
        for one in ours
        if isinstance(one.engine, RidgelineEngine)
    )
    said = f"{wanted} threads of {most} replicas at most, {have} cores"
    if wanted > have:
        means = "replicas wait for each other's cores: each step takes longer"
        remedy = f"fewer replicas.max, or engine.threads that add up to {have}"
        return warning("cores", said, means, remedy)
    return right("cores", said)


def gpus(program: str = "nvidia-smi") -> Finding:
    """The GPUs that the driver names, where its program is here."""
    if shutil.which(program) is None:
        return right("gpus", "none looked for: nvidia-smi is not here")
    query = ("--query-gpu=index,name,memory.total,driver_version", "--format=csv,noheader")
    try:
        done = subprocess.run(
            [program, *query], capture_output=True, text=True, check=False, timeout=_GPUS_S
        )
    except subprocess.TimeoutExpired:
        return _no_driver(f"nvidia-smi did not answer in {_GPUS_S:g} s")
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode != 0:
        told = (lines or [*done.stderr.splitlines(), f"status {done.returncode}"])[0]
        return _no_driver(f"nvidia-smi failed: {told}")
    if not lines:
        return warning(
            "gpus",
            "the driver runs and sees no GPU",
            "nothing computes there",
            "lspci | grep -i nvidia",
        )
    return right("gpus", "; ".join(f"GPU {line}" for line in lines))


def _no_driver(said: str) -> Finding:
    means = "engines on these GPUs do not start"
    return wrong(
        "gpus", said, means, "dmesg | grep -i -e nvrm -e xid; then reload or update the driver"
    )
