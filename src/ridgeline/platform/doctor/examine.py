"""Every check, one after the other; one that fails itself hides nothing of the others."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ridgeline.catalog.packaged import find_model
from ridgeline.errors import RidgelineError
from ridgeline.launch.running import Running
from ridgeline.paths import cache_home, state_home
from ridgeline.platform.doctor import computing, folders, installation, processes, system
from ridgeline.platform.doctor.database import database, is_postgres
from ridgeline.platform.doctor.finding import Finding, right, wrong
from ridgeline.serving.gateway.place import database_url
from ridgeline.serving.spec import RidgelineEngine
from ridgeline.spec import Platform, load

Check = Callable[[], Finding | Iterable[Finding]]
Note = tuple[Path, Running | None]


def examine(spec: Path | None) -> list[Finding]:
    """All findings, in the order of the checks. Nothing is changed."""
    platform, found = _read(spec)
    for name, check in _checks(platform, list(processes.noted())):
        found += _run(name, check)
    return found


def _read(spec: Path | None) -> tuple[Platform | None, list[Finding]]:
    if spec is None:
        return None, []
    try:
        platform = load(spec)
    except RidgelineError as error:
        said, means = str(error).partition("\n  try: ")[0], "what it asks for was not looked at"
        return None, [wrong("spec", said, means, error.remedy or "mend what is said there")]
    models = ", ".join(model.name for model in platform.models)
    return platform, [right("spec", f"{spec.name} describes {platform.name}: {models}")]


def _checks(platform: Platform | None, notes: list[Note]) -> Iterator[tuple[str, Check]]:
    needed = installation.requirements()
    yield "python", installation.python
    yield "packages", lambda: installation.packages(needed)
    yield "extras", lambda: installation.extras(needed, wanted(platform))
    yield "model", installation.default_model
    yield "self-test", computing.computing
    yield "gpus", computing.gpus
    state, cache = state_home(), cache_home()
    yield "state", lambda: folders.folder("state", state, "the ledger and logs", "RIDGELINE_STATE")
    yield "cache", lambda: folders.folder("cache", cache, "converted weights", "RIDGELINE_CACHE")
    now = (time.time(), system.built_s(), system.is_synchronised())
    yield "clock", lambda: system.clock(*now)
    yield "time zones", system.zones
    yield "open files", lambda: system.open_files(platform)
    yield "platforms", lambda: processes.notes(notes)
    yield "orphans", lambda: processes.orphans(processes.processes(), os.getuid())
    yield "database", lambda: database(_url(platform))
    if platform is not None:
        yield from _of_spec(platform, [note for _, note in notes if note and note.alive()])


def _of_spec(platform: Platform, up: list[Running]) -> Iterator[tuple[str, Check]]:
    named = {
        one.name: one.model
        for one in platform.models
        if isinstance(one.engine, RidgelineEngine) and one.model is not None
    }
    is_up = any(one.name == platform.name for one in up)
    yield "weights", lambda: installation.weights(named, find_model)
    yield "variables", lambda: system.variables(platform)
    yield "port", lambda: processes.port(platform, up)
    yield "cores", lambda: computing.threads(platform)
    if not is_up:  # else what is free is less by what its replicas have
        yield "memory", lambda: system.memory(platform, system.free_bytes())


def wanted(platform: Platform | None) -> dict[str, str]:
    """The optional parts that a spec needs, and what for."""
    if platform is None:
        return {}
    found = {"gateway": "its gateway"}
    ours = [one.name for one in platform.models if isinstance(one.engine, RidgelineEngine)]
    if ours:
        found["engine"] = ", ".join(ours)
    if is_postgres(platform.gateway.database or ""):
        found["postgres"] = "gateway.database"
    if platform.gateway.tracing:
        found["otel"] = "gateway.tracing"
    return found


def _url(platform: Platform | None) -> str:
    if platform is None:
        return database_url("platform", None)
    return database_url(platform.name, platform.gateway.database)


def _run(name: str, check: Check) -> list[Finding]:
    try:
        found = check()
        return [found] if isinstance(found, Finding) else list(found)
    except Exception as error:  # a check that fails is news of its own, and the others go on
        means = "nothing is known of it"
        remedy = "please report it, with the output of ridgeline doctor --json"
        return [wrong(name, f"the check failed: {type(error).__name__}: {error}", means, remedy)]
