"""What is installed: Python, packages and their versions, the optional parts, the default model."""

import base64
import hashlib
import importlib.metadata
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import ridgeline
from ridgeline.catalog.packaged import DEFAULT_MODEL, PACKAGED
from ridgeline.errors import ModelError
from ridgeline.platform.doctor.finding import Finding, right, warning, wrong

_OLDEST = (3, 11)
_CHUNK_BYTES = 1 << 20
#: What each optional part is for.
EXTRAS = {
    "gateway": "`up`: the gateway, tenants and the ledger",
    "engine": "Ridgeline's own engine",
    "postgres": "a database in PostgreSQL",
    "otel": "traces to an OpenTelemetry collector",
    "plot": "pictures of plans and benchmarks",
    "ray": "replicas on a Ray cluster",
}
#: Without these nothing can be served.
_WANTED = ("gateway", "engine")

#: The version of a package, or None where it is not installed.
Version = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package that Ridgeline needs, at least in this version; of an optional part, or ""."""

    package: str
    least: str
    extra: str = ""


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Whether this Python can run it."""
    shown = ".".join(map(str, version))
    if version[:2] < _OLDEST:
        return wrong(
            "python",
            f"Python {shown}",
            "Ridgeline is written for 3.11 and newer",
            "python3.11 -m venv .venv, and install it there",
        )
    return right("python", f"Ridgeline {ridgeline.__version__} on Python {shown}, {_system()}")


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"


def requirements() -> list[Requirement]:
    """What the package says it needs; nothing where it is not installed but only imported."""
    try:
        lines = importlib.metadata.requires("ridgeline") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [one for line in lines if (one := parsed(line)) is not None]


def parsed(line: str) -> Requirement | None:
    """`aiohttp>=3.10; extra == "gateway"`; None where another system is meant."""
    match = _LINE.match(line)
    if match is None or (sys.platform != "win32" and "sys_platform == 'win32'" in line):
        return None
    extra = _EXTRA.search(line)
    return Requirement(match[1].lower(), match[2] or "0", extra[1] if extra else "")


_LINE = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:>=\s*([0-9][0-9.]*))?")
_EXTRA = re.compile(r"extra == ['\"]([a-z]+)['\"]")


def installed(package: str) -> str | None:
    """Its version here."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def packages(needed: list[Requirement], version: Version = installed) -> Iterator[Finding]:
    """Those that are always needed, and whether any that is here is too old."""
    if not needed:
        yield warning(
            "packages",
            "Ridgeline is imported, but not installed",
            "its packages cannot be checked",
            "pip install . in the checkout",
        )
        return
    missing = sorted({one.package for one in needed if not one.extra and not version(one.package)})
    old = sorted({shown for one in needed if (shown := _too_old(one, version(one.package)))})
    if missing or old:
        said = "; ".join([*(f"{name} is missing" for name in missing), *old])
        means = "parts of Ridgeline fail when they are called"
        yield wrong("packages", said, means, "pip install --upgrade ridgeline")
    else:
        here = {one.package for one in needed if version(one.package)}
        yield right("packages", f"{len(here)} packages, all new enough")


def _too_old(needed: Requirement, version: str | None) -> str:
    if version is None or _numbers(version) >= _numbers(needed.least):
        return ""
    return f"{needed.package} {version} is older than {needed.least}"


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: enough to compare with a least one."""
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def extras(
    needed: list[Requirement], wanted: Mapping[str, str], version: Version = installed
) -> Iterator[Finding]:
    """The optional parts. `wanted` has those that the spec needs, and what for."""
    here, absent = [], []
    for extra, purpose in EXTRAS.items():
        named = {one.package for one in needed if one.extra == extra}
        missing = sorted(name for name in named if version(name) is None)
        if not missing:
            here += [f"[{extra}]"] if named else []
            continue
        remedy = f"pip install 'ridgeline[{extra}]', in a checkout pip install '.[{extra}]'"
        said = f"[{extra}] is not installed: {', '.join(missing)}"
        if extra in wanted:
            yield wrong("extras", said, f"the spec needs it for {wanted[extra]}", remedy)
        elif extra in _WANTED:
            yield warning("extras", said, f"it is for {purpose}", remedy)
        else:
            absent.append(f"[{extra}], which is for {purpose}")
    without = f"; without {', '.join(absent)}" if absent else ""
    yield right("extras", f"{', '.join(here) or 'none'}{without}")


def default_model() -> Finding:
    """Whether the default model is here, as it was when it was packaged."""
    model = PACKAGED[DEFAULT_MODEL]
    path = model.path()
    if path is None:
        return warning(
            "model",
            f"the default model {model.name} is not here",
            "`ridgeline up` without a spec has nothing to serve",
            model.install,
        )
    size = f"{path.stat().st_size / 1e6:,.0f} MB"
    recorded = _recorded(model.package, model.file)
    if not recorded:
        return right("model", f"the default model {model.name}, {size}; no hash to check")
    if digest(path) != recorded:
        again = model.install.replace("pip install", "pip install --force-reinstall")
        means = "its file is not the one that was packaged: torn, or changed since"
        return wrong("model", f"the default model {model.name} has another hash", means, again)
    return right("model", f"the default model {model.name}, {size}, its hash is right")


def _recorded(package: str, file: str) -> str:
    """The SHA-256 that the package's own record has of a file."""
    for one in importlib.metadata.distribution(package).files or []:
        if one.as_posix() == f"{package}/{file}" and one.hash is not None:
            return str(one.hash.value)
    return ""


def digest(path: Path) -> str:
    """A file's SHA-256, as packages record it."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            found.update(chunk)
    return base64.urlsafe_b64encode(found.digest()).rstrip(b"=").decode()


def weights(named: Mapping[str, str], find: Callable[[str], object]) -> Iterator[Finding]:
    """Whether what the spec's models load is here; `named` by the model's own name."""
    here = []
    for name, source in named.items():
        try:
            find(source)
        except ModelError as error:
            yield wrong("weights", error.problem, f"{name} does not start", error.remedy)
        else:
            here.append(name)
    if here:
        yield right("weights", f"here: those of {', '.join(here)}")
