"""`ridgeline tenants`, `keys` and `store` as a person meets them."""

import asyncio
import json
import re
import shlex
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ridgeline.cli import ridgeline_command
from ridgeline.cli.databases import same_place
from ridgeline.errors import RidgelineError, SpecError, StoreError
from ridgeline.paths import state_home
from ridgeline.serving.gateway.callers import Callers
from ridgeline.serving.gateway.tenants import Tenants
from ridgeline.serving.tenant_spec import TenantSpec
from ridgeline.store.database import open_store

#: A terminal of 80 columns, as rich knows it.
TERMINAL = {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": "80"}
SPEC = """
name: house
models: [{name: m, engine: {kind: url, urls: ["http://127.0.0.1:1"]}}]
"""


def run(*arguments: str, status: int = 0, env: dict[str, str] | None = None) -> Result:
    done = CliRunner(env=env).invoke(ridgeline_command, arguments)
    if isinstance(done.exception, RidgelineError):
        raise done.exception
    assert done.exit_code == status, done.output
    return done


def data(*arguments: str) -> object:
    return json.loads(run(*arguments, "--json").stdout)


def test_a_tenant_is_added_changed_disabled_and_enabled():
    run("tenants", "add", "chat", "--class", "interactive", "--weight", "2",
        "--output-tokens-per-minute", "2M", "--concurrent", "4",
        "--budget", "99.95/day", "--timezone", "Europe/Berlin")  # fmt: skip
    told = run("tenants", "list").stdout
    assert re.search(r"chat +interactive +2 +active +admin +2,000,000 output tokens/min", told)
    assert "4 at once, $99.95/day Europe/Berlin" in told
    run("tenants", "change", "chat", "--concurrent", "none", "--budget", "none", "--weight", "1")
    (shown,) = data("tenants", "list")
    assert shown["limits"] == {"output_tokens_per_minute": 2_000_000}
    assert (shown["class"], shown["weight"]) == ("interactive", 1.0)
    run("tenants", "disable", "chat")
    assert "disabled" in run("tenants", "list").stdout
    assert data("tenants", "change", "chat", "--enable")["disabled_at"] is None


def test_a_secret_is_shown_once_and_is_all_that_stdout_holds():
    run("tenants", "add", "chat")
    made = run("keys", "create", "chat", "--name", "laptop", "--model", "a", "--model", "b")
    secret = made.stdout.strip()
    assert re.fullmatch(r"rl-[0-9A-Za-z]{43}", secret)
    assert "not shown again" in made.stderr
    told = run("keys", "list").stdout
    assert f"{secret[:6]}...{secret[-4:]}" in told
    assert "laptop" in told
    assert "a, b" in told
    assert secret not in told + run("keys", "list", "--json").stdout


def test_a_key_opens_the_gateway_until_it_is_revoked():
    run("tenants", "add", "chat")
    made = data("keys", "create", "chat", "--role", "admin", "--requests-per-minute", "600")
    engine = open_store(f"sqlite:///{state_home()}/platform/ledger.db")
    caller = asyncio.run(Callers(engine).authenticate(f"Bearer {made['secret']}"))
    assert (caller.tenant, caller.role, caller.key_limits.requests_per_minute) == (
        "chat", "admin", 600
    )  # fmt: skip
    told = run("keys", "revoke", made["key"]["id"]).stdout
    assert "is revoked" in told
    assert "revoked" in run("keys", "list").stdout
    assert Tenants(engine).audited()[0].actor.startswith("cli")
    engine.dispose()


def test_a_key_may_expire():
    run("tenants", "add", "chat")
    key = data("keys", "create", "chat", "--expires", "12h")["key"]
    assert 0 <= key["expires_at"] - key["created_at"] - 12 * 3600 <= 1
    assert "until" in run("keys", "list", "--tenant", "chat").stdout


@pytest.mark.parametrize("by", ["spec", "database"])
def test_a_spec_or_a_url_names_the_database(tmp_path: Path, by: str):
    file = tmp_path / "platform.yaml"
    file.write_text(SPEC)
    database = state_home() / "house" / "ledger.db"
    place = [str(file)] if by == "spec" else ["--database", f"sqlite:///{database}"]
    run("tenants", "add", "chat", *place)
    assert database.exists()
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700
    assert [one["name"] for one in data("tenants", "list", *place)] == ["chat"]
    with pytest.raises(SpecError, match="names a database already"):
        run("tenants", "list", str(file), "--database", "sqlite:///x.db")


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (["tenants", "list"], StoreError, "is not there"),
        (["keys", "list"], StoreError, "is not there"),
        (["store", "backup", "x"], StoreError, "is not there"),
        (["tenants", "add", "X"], SpecError, "NAME: 'X' is not a name of lower-case"),
        (["tenants", "add", "x", "--weight", "0"], SpecError, "--weight: input should be greater"),
        (["tenants", "add", "x", "--concurrent", "few"], SpecError, "--concurrent: 'few' is not"),
        (["tenants", "add", "x", "--concurrent", "0"], SpecError, "--concurrent: "),
        (["tenants", "add", "x", "--budget", "lots"], SpecError, "--budget: "),
        (["tenants", "add", "x", "--budget", "5/week"], SpecError, "--budget: "),
        (["tenants", "add", "x", "--budget", "-5"], SpecError, "--budget: "),
        (["tenants", "add", "x", "--timezone", "UTC"], SpecError, "belongs to a budget"),
        (
            ["tenants", "add", "x", "--budget", "5", "--timezone", "Mars"],
            SpecError,
            "'Mars' is no time zone",
        ),
        (["tenants", "change", "x"], SpecError, "nothing to change"),
        (["keys", "create", "x", "--expires", "soon"], SpecError, "--expires: 'soon' is not"),
        (["keys", "create", "x", "--expires", "0s"], SpecError, "out of range"),
        (["store", "backup", "platform.yaml"], SpecError, "is a spec, not a backup"),
        (["store", "restore", "nothing"], StoreError, "nothing: is not there"),
    ],
)
def test_a_wrong_word_is_refused_by_its_name(
    arguments: list[str], error: type[RidgelineError], says: str
):
    with pytest.raises(error) as told:
        run(*arguments)
    assert says in str(told.value)
    assert not (state_home() / "platform").exists()


def test_what_is_not_there_is_told():
    run("tenants", "add", "chat")
    with pytest.raises(SpecError, match="there is a tenant 'chat'"):
        run("tenants", "add", "chat")
    with pytest.raises(SpecError, match="no tenant 'x'") as told:
        run("keys", "create", "x")
    assert "tenants list" in told.value.remedy
    with pytest.raises(SpecError, match="no key 'key-x'"):
        run("keys", "revoke", "key-x")
    assert "keys create" in run("keys", "list", status=1).stdout


@pytest.fixture(params=["spec", "database"])
def place(request, tmp_path: Path) -> list[str]:
    """The words that name a database, of a file whose name has to be quoted."""
    file = tmp_path / "my platform.yaml"
    file.write_text(SPEC)
    by_url = ["--database", f"sqlite:///{tmp_path}/l.db"]
    return [str(file)] if request.param == "spec" else by_url


def follow(told: str) -> Result:
    """Type what was printed as the next command."""
    (line,) = re.findall(r"^  ridgeline (.*)$", told, re.MULTILINE)
    return run(*shlex.split(line))


def test_the_next_command_works_as_it_is_printed(place: list[str]):
    added = run("tenants", "add", "race", *place).stdout
    none = run("keys", "list", *place, status=1).stdout
    assert follow(none.replace("TENANT", "race")).stdout.startswith("rl-")
    assert follow(added).stdout.startswith("rl-")
    assert "no limits" in follow(run("tenants", "disable", "race", *place).stdout).stdout
    assert data("tenants", "list", *place)[0]["disabled_at"] is None


def test_a_remedy_names_the_same_place(place: list[str]):
    with pytest.raises(StoreError) as told:
        run("tenants", "list", *place)
    assert f"`ridgeline tenants add NAME {shlex.join(place)}`" in told.value.remedy
    run("tenants", "add", "race", *place)
    with pytest.raises(SpecError) as told:
        run("keys", "create", "nobody", *place)
    assert told.value.remedy.startswith(f"ridgeline tenants list {shlex.join(place)} shows")
    with pytest.raises(SpecError) as told:
        run("keys", "revoke", "key-x", *place)
    assert told.value.remedy.startswith(f"ridgeline keys list {shlex.join(place)} shows")


def test_a_password_is_not_printed_again():
    assert same_place(None, "postgresql://me:s3cret@db/l") == " --database URL"
    assert same_place(None, "postgresql:///l?password=s3cret") == " --database URL"
    assert same_place(None, "postgresql://me@db/l") == " --database postgresql://me@db/l"
    assert same_place(None, None) == ""


def test_a_model_that_the_spec_does_not_serve_is_warned_of(tmp_path: Path):
    file = tmp_path / "platform.yaml"
    file.write_text(SPEC)
    run("tenants", "add", "search", str(file))
    made = run("keys", "create", "search", str(file), "--model", "nosuch", "--model", "m")
    assert made.stdout.startswith("rl-")  # it may come later
    assert made.stderr.count("serves no model") == 1
    assert "serves no model 'nosuch', only: m" in made.stderr
    assert "warning" not in run("keys", "create", "search", str(file), "--model", "m").stderr
    file.write_text(SPEC.replace("name: m,", 'name: "*",'))
    assert "warning" not in run("keys", "create", "search", str(file), "--model", "x").stderr
    run("tenants", "add", "search")  # no spec, so nobody knows what is served
    assert "warning" not in run("keys", "create", "search", "--model", "nosuch").stderr


def test_at_80_columns_and_in_a_pipe_lists_can_be_read():
    limits = ["--requests-per-minute", "600", "--input-tokens-per-minute", "2M",
              "--output-tokens-per-minute", "400k", "--budget", "5000/month"]  # fmt: skip
    run("tenants", "add", "research-and-development", *limits)
    made = data("keys", "create", "research-and-development", "--name", "laptop", *limits)
    assert made["key"]["id"]
    for what in ("tenants", "keys"):
        piped = run(what, "list", env={"COLUMNS": "80"}).stdout.splitlines()
        assert len(piped) == 2
        assert "400,000 output tokens/min, $5000/month" in piped[1]
        seen = run(what, "list", env=TERMINAL).stdout
        assert max(map(len, seen.splitlines())) <= 80
        assert len(seen.splitlines()) <= 5
        broken = set(piped[1].split()) - {word.rstrip(";") for word in seen.split()}
        assert not broken


def test_tenants_of_platform_yaml_are_changed_there(tmp_path: Path):
    store = open_store(f"sqlite:///{state_home()}/platform/ledger.db")
    Tenants(store).sync([TenantSpec(name="chat")])
    store.dispose()
    with pytest.raises(SpecError, match=r"platform.yaml rules tenant 'chat'"):
        run("tenants", "change", "chat", "--weight", "2")
    assert "platform.yaml" in run("tenants", "list").stdout


def test_a_backup_moves_to_another_database(tmp_path: Path):
    run("tenants", "add", "chat")
    run("keys", "create", "chat")
    file, new = str(tmp_path / "backup"), f"sqlite:///{tmp_path}/new.db"
    assert data("store", "backup", file) == {"file": file, "rows": 4}
    assert "4 rows" in run("store", "restore", file, "--database", new).stdout
    assert data("keys", "list", "--database", new) == data("keys", "list")
    with pytest.raises(StoreError, match="holds rows already"):
        run("store", "restore", file, "--database", new)
