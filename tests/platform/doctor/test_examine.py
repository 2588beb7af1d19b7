from ridgeline.platform.doctor import examine as room
from ridgeline.platform.doctor.examine import examine, wanted
from ridgeline.platform.doctor.finding import Level, right, warning, wrong
from ridgeline.spec import parse


def quick(monkeypatch):
    """Without the self-test, which has tests of its own."""
    monkeypatch.setattr(room.computing, "computing", list)


def test_every_check_has_something_to_say(monkeypatch, tmp_path):
    quick(monkeypatch)
    file = tmp_path / "p.yaml"
    file.write_text("models: [{name: a, engine: {kind: fake}}]\ngateway: {listen: '127.0.0.1:0'}")
    checks = {one.check for one in examine(file)}
    assert checks >= {
        "spec", "python", "packages", "extras", "model", "gpus", "state", "cache", "clock",
        "time zones", "open files", "platforms", "orphans", "filesystem", "database", "port",
        "cores", "memory",
    }  # fmt: skip


def test_a_spec_that_cannot_be_read_is_one_finding_and_the_rest_is_looked_at(monkeypatch, tmp_path):
    quick(monkeypatch)
    file = tmp_path / "p.yaml"
    file.write_text("models: []")
    found = examine(file)
    assert (found[0].check, found[0].level) == ("spec", Level.WRONG)
    assert "models" in found[0].said
    assert "python" in {one.check for one in found}
    assert "port" not in {one.check for one in found}


def test_a_check_that_fails_hides_nothing_of_the_others(monkeypatch):
    quick(monkeypatch)

    def broken():
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(room.system, "zones", broken)
    found = {one.check: one for one in examine(None)}
    assert found["time zones"].level is Level.WRONG
    assert "ZeroDivisionError: oh" in found["time zones"].said
    assert "open files" in found


def test_the_parts_that_a_spec_needs():
    text = (
        "models: [{name: a, model: m}]\n"
        "gateway: {database: 'postgresql://x/y', tracing: 'http://127.0.0.1:4318'}"
    )
    assert wanted(parse(text, name="p")) == {
        "gateway": "its gateway",
        "engine": "a",
        "postgres": "gateway.database",
        "otel": "gateway.tracing",
    }
    assert wanted(None) == {}
    fake = parse("models: [{name: a, engine: {kind: fake}}]", name="p")
    assert wanted(fake) == {"gateway": "its gateway"}


def test_a_finding_that_is_not_right_says_what_to_do():
    assert right("x", "said").remedy == ""
    for make in (warning, wrong):
        found = make("x", "said", "means", "remedy")
        assert (found.means, found.remedy) == ("means", "remedy")
