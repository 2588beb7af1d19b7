import resource
from zoneinfo import ZoneInfo

import pytest

from ridgeline.platform.doctor import system
from ridgeline.platform.doctor.finding import Level
from ridgeline.spec import parse

NOW_S = 1_800_000_000.0
MODELS = "models: [{name: a, engine: {kind: fake, max_seqs: 100}, replicas: {min: 1, max: 4}}]"


def test_the_clock_of_this_machine_is_after_the_installation():
    assert system.built_s() > 0
    assert system.is_synchronised() in (True, False, None)


@pytest.mark.parametrize(
    ("built_s", "synchronised", "level"),
    [
        (NOW_S - 10, True, Level.OK),
        (NOW_S - 10, None, Level.OK),
        (NOW_S - 10, False, Level.WARNING),
        (NOW_S + 10**8, True, Level.WRONG),
    ],
)
def test_the_clock(built_s, synchronised, level):
    found = system.clock(NOW_S, built_s, synchronised)
    assert found.level is level
    assert found.said.startswith("it is 2027-01-15 08:00:00 UTC")


def test_time_zones_are_found_here():
    assert system.zones().level is Level.OK


def test_no_time_zones_are_wrong(monkeypatch):
    import sys
    import zoneinfo

    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=[])
    ZoneInfo.clear_cache()
    known = [name for name in sys.modules if name.partition(".")[0] == "tzdata"]
    for name in ("tzdata", *known):  # what was imported before is found without its parent
        monkeypatch.setitem(sys.modules, name, None)
    try:
        found = system.zones()
    finally:
        zoneinfo.reset_tzpath(to=before)
        ZoneInfo.clear_cache()
    assert (found.level, found.remedy) == (Level.WRONG, "pip install tzdata")


def test_too_few_open_files_are_a_warning():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    platform = parse(MODELS, name="p")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        found = system.open_files(platform)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found.level is Level.WARNING
    assert found.said == "512 open files allowed, 1,000 wanted for 400 streams at once"
    assert found.remedy == "ulimit -n 1000"


def test_a_hard_limit_is_raised_elsewhere():
    found = system.open_files(parse(MODELS, name="p"), (512, 800))
    assert found.remedy == "LimitNOFILE=1000 in the systemd unit"


def test_enough_open_files_are_right():
    assert system.open_files(None, (1024, 4096)).level is Level.OK
    infinity = resource.RLIM_INFINITY
    assert system.open_files(parse(MODELS, name="p"), (infinity, infinity)).level is Level.OK


@pytest.fixture
def sized(tmp_path):
    """Replicas of 504 MB and a cache of 1 GB each, two of them, four at most."""
    weights = tmp_path / "m.gguf"
    weights.write_bytes(b"x" * 1_000_000)
    text = f"models: [{{name: a, model: '{weights}', replicas: {{min: 2, max: 4}}}}]"
    return parse(text, name="p")


@pytest.mark.parametrize(
    ("have", "level", "said"),
    [
        (2 * 10**9, Level.WRONG, "replicas need up to 3.0 GB, 2.0 GB are free"),
        (4 * 10**9, Level.WARNING, "replicas.max needs up to 6.0 GB, 4.0 GB are free"),
        (8 * 10**9, Level.OK, "replicas need up to 6.0 GB, 8.0 GB are free"),
    ],
)
def test_memory_for_the_replicas(sized, have, level, said):
    (found,) = system.memory(sized, have)
    assert (found.level, found.said) == (level, said)


def test_memory_that_is_not_known_is_not_wrong(sized):
    (found,) = system.memory(sized, None)
    assert found.level is Level.OK


def test_a_containers_limit_counts(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    assert system.free_bytes(meminfo, tmp_path) == 8000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    assert system.free_bytes(meminfo, tmp_path) == 8000 * 1024
    (tmp_path / "memory.max").write_text("4096000\n")
    (tmp_path / "memory.current").write_text("96000\n")
    assert system.free_bytes(meminfo, tmp_path) == 4_000_000
    assert system.free_bytes(tmp_path / "none", tmp_path) is None


def test_variables_that_are_not_set_are_wrong_and_never_shown():
    text = (
        "models: [{name: a, engine: {kind: url, urls: ['http://x:1'], api_key_env: BIG_KEY}}]\n"
        "gateway: {api_key_env: OWN_KEY, admin_key_env: ADMIN_KEY}"
    )
    platform = parse(text, name="p")
    environment = {"OWN_KEY": "s3cret", "ADMIN_KEY": ""}
    found = list(system.variables(platform, environment))
    assert [(one.level, one.said) for one in found] == [
        (Level.WRONG, "BIG_KEY is not set, which models[0].engine.api_key_env names"),
        (Level.WRONG, "ADMIN_KEY is not set, which gateway.admin_key_env names"),
        (Level.OK, "set: OWN_KEY"),
    ]
    assert found[0].remedy == "export BIG_KEY=…"
