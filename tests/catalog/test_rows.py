"""Rows have an origin, names have aliases, and a user's file lies over ours."""

import pytest
import yaml

from ridgeline.catalog.accelerators import accelerator
from ridgeline.catalog.check import findings
from ridgeline.catalog.models import model, models
from ridgeline.catalog.rows import kinds, overlay, row, rows, sources
from ridgeline.errors import CatalogError
from ridgeline.quantity import Provenance

MINE = {"source": "my own measurement", "read_on": "2026-11-01"}


def mine(**fields):
    return {"accelerators": [{"id": "h100-sxm", **MINE, **fields}]}


@pytest.mark.parametrize("kind", ["accelerators", "models", "network", "xids"])
def test_every_row_says_where_and_when_it_was_read(kind):
    assert all(
        (one.get("source") or one.get("sources") or one.get("src")) and one["read_on"]
        for one in rows(kind).values()
    )


def test_every_source_key_is_explained():
    for kind in ("accelerators", "network"):
        for one in rows(kind).values():
            assert set(one["src"].values()) <= sources(kind).keys(), one["id"]


def test_every_price_has_a_date():
    listed = [
        price
        for one in rows("accelerators").values()
        for price in one.get("prices_usd_per_accelerator_hour", ())
    ]
    assert listed
    assert all(price["as_of"] for price in listed)


def test_the_catalog_is_as_large_as_it_says():
    assert len(rows("accelerators")) == 35
    assert len(rows("models")) == 54
    assert len(rows("xids")) > 100
    assert len(rows("network")) >= 15


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("llama-3-70b", "llama-3.1-70b"),
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("Meta-Llama/llama-3.1-70b", "llama-3.1-70b"),
        ("Llama 3.1 70B", "llama-3.1-70b"),
        ("smollm2-135m-instruct", "smollm2-135m"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m"),
        ("deepseek-v3", "deepseek-v3"),
        ("DeepSeek-V3", "deepseek-v3"),
        ("Meta-Llama-3-8B", "llama-3-8b"),
        ("kimi-k2.5", "kimi-k2.5"),
    ],
)
def test_models_have_the_names_that_people_use(written, meant):
    assert model(written).id == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("h100", "h100-sxm"),
        ("H100", "h100-sxm"),
        ("h200", "h200-sxm"),
        ("b200", "b200-sxm"),
        ("mi300x", "mi300x"),
        ("a100", "a100-80gb-sxm"),
        ("gb200-nvl72", "gb200"),
        ("trillium", "tpu-v6e"),
    ],
)
def test_accelerators_have_the_names_that_people_use(written, meant):
    assert accelerator(written).id == meant


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(CatalogError, match="is not in the catalog of models") as raised:
        model("llama-3.1-8")
    assert '"llama-3.1-8b"' in raised.value.remedy
    with pytest.raises(CatalogError) as raised:
        accelerator("something-else-entirely")
    assert raised.value.remedy == "`ridgeline catalog list accelerators`"


def test_a_name_that_could_be_several_is_refused():
    twin = dict(rows("models")["qwen3-8b"]) | MINE | {"id": "another"}
    with overlay({"models": [twin]}), pytest.raises(CatalogError, match="could be several"):
        model("Qwen/Qwen3-8B")


# What is refused, in anyone's file.


@pytest.mark.parametrize(
    ("layer", "where", "problem"),
    [
        ({"accelerators": [{"id": "h100-sxm", "tdp_w": 600}]}, ".source", "has no source"),
        ({"accelerators": [{"id": "h100-sxm", "source": "me"}]}, ".read_on", "has no date"),
        (mine(tdp="600"), ".tdp", "no such field"),
        (mine(memory={"byts": 1}), ".memory.byts", "no such field"),
        (mine(tdp_w="600 W"), ".tdp_w", "not a number"),
        (mine(tdp_w=True), ".tdp_w", "not a number"),
        (mine(tdp_w=-1), ".tdp_w", "is no size"),
        (mine(tdp_w=float("nan")), ".tdp_w", "is no size"),
        (mine(wave_size=1.5), ".wave_size", "not whole"),
        (mine(memory_bandwidth_bytes_per_s="8e12"), ".memory_bandwidth", "is text to YAML"),
        (mine(memory=80), ".memory", "has no fields"),
        (mine(status="soon"), ".status", "'soon' is not known"),
        (mine(unsupported_dtypes="fp8"), ".unsupported_dtypes", "not a list"),
        (mine(read_on="yesterday"), ".read_on", "not a date"),
        (mine(aliases=["h200"]), ".aliases", "already a name of h200-sxm"),
        (mine(aliases=["l4"]), ".aliases", "already a name of l4"),
        ({"accelerators": [{"id": "mine", **MINE}]}, "mine.name", "is missing"),
        ({"accelerators": [{**MINE, "name": "x"}]}, "[0].id", "no id"),
        ({"accelerators": [{"id": "Mine", **MINE}]}, "[0].id", "no id"),
        ({"accelerators": {"id": "mine"}}, "accelerators", "not a list"),
        ({"accelerators": ["mine"]}, "[0]", "is no row"),
        ({"accelerators": [mine()["accelerators"][0]] * 2}, "[1].id", "there twice"),
        ({"accelerator": []}, "accelerator", "no part of a catalog"),
        (
            {"models": [{"id": "qwen3-8b", **MINE, "attention": {"windw": 1}}]},
            ".attention.windw",
            "no such field",
        ),
        (
            {"accelerators": mine(prices_usd_per_accelerator_hour=[{"usd": 2}])["accelerators"]},
            ".prices_usd_per_accelerator_hour[0].usd",
            "no such field",
        ),
    ],
)
def test_a_wrong_row_is_refused_with_its_place_and_a_remedy(layer, where, problem):
    with pytest.raises(CatalogError) as raised, overlay(layer, where="my.yaml"):
        findings()
    assert problem in raised.value.problem
    assert raised.value.where.startswith("my.yaml")
    assert where in raised.value.where
    assert raised.value.remedy


def test_the_remedy_for_a_number_that_yaml_takes_for_text_is_that_number():
    with pytest.raises(CatalogError) as raised, overlay(mine(tdp_w="8e2")):
        pass
    written = raised.value.remedy.split()[0]
    assert yaml.safe_load(written) == 800.0


# Overlays.


def test_an_overlay_changes_one_field_and_leaves_the_others():
    with overlay(mine(memory={"bytes": 96e9})):
        changed = row("accelerators", "h100")
        assert changed["memory"] == {"bytes": 96e9, "driver_reported_bytes": 85520809984}
        assert changed["tdp_w"] == 700
    assert row("accelerators", "h100")["memory"]["bytes"] == 85899345920


def test_what_an_overlay_changes_is_said_to_come_from_there():
    with overlay(mine(memory_bandwidth_bytes_per_s=3.0e12), where="my.yaml"):
        changed = accelerator("h100").memory_bytes_per_s
        assert "my own measurement (read 2026-11-01; my.yaml)" in changed.source
        assert changed.provenance is Provenance.GIVEN
        same = accelerator("h100").tdp_w
        assert "my own" not in same.source
        assert "2026-11-30" in same.source


def test_who_says_how_much_memory_there_is_is_believed_over_what_drivers_report():
    with overlay(mine(memory={"bytes": 96e9})):
        assert accelerator("h100").memory_bytes.value == 96e9


def test_overlays_lie_over_each_other():
    with overlay(mine(tdp_w=600)), overlay(mine(tdp_w=500)):
        assert accelerator("h100").tdp_w.value == 500


def test_a_users_file_is_read_when_it_is_named(tmp_path, monkeypatch):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "default_source: my data sheet\ndefault_read_on: 2026-11-02\n"
        "accelerators:\n- {id: h100-sxm, tdp_w: 600}\n"
    )
    monkeypatch.setenv("RIDGELINE_CATALOG", str(path))
    assert accelerator("h100").tdp_w.value == 600
    assert "my data sheet (read 2026-11-02" in accelerator("h100").tdp_w.source


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a list", "is not a mapping"),
        ("models: [", "cannot be read"),
        ("models:\n- {id: mine, tdp_w: 1}", "no such field"),
        (None, "No such file"),
    ],
)
def test_a_users_file_that_cannot_be_used_is_refused(tmp_path, monkeypatch, text, problem):
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("RIDGELINE_CATALOG", str(path))
    with pytest.raises(CatalogError, match=problem) as raised:
        model("qwen3-8b")
    assert str(path) in raised.value.where


def test_an_empty_file_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "mine.yaml"
    path.write_text("")
    monkeypatch.setenv("RIDGELINE_CATALOG", str(path))
    assert len(models()) == 54


def test_every_kind_has_a_file():
    assert {"accelerators", "models", "network", "xids"} <= set(kinds())


# What a user's file must not hold.


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("models:\n- {id: l, source: x, read_on: 2026-13-45}\n", "mine.yaml", "month"),
        ('models:\n- {id: l, source: x, read_on: "2026-13-45"}\n', "l.read_on", "not a date"),
        ('models:\n- {id: l, source: x, read_on: "2026-02-30"}\n', "l.read_on", "not a date"),
        (b"models: \xff\xfe", "mine.yaml", "not UTF-8"),
        ("[" * 100_000, "mine.yaml", "nesting depth"),
        (f"accelerators:\n- {{id: l4, tdp_w: 1{'0' * 400}, SRC}}\n", "l4.tdp_w", "no size"),
        (f"accelerators:\n- {{id: l4, tdp_w: 1{'0' * 6000}, SRC}}\n", "mine.yaml", "digits"),
        ("accelerators:\n- {id: l4, tdp_w: 1.0e+30, SRC}\n", "l4.tdp_w", "no size"),
        ("sources: 7\n", "sources", "no fields"),
        ("default_source: [1]\n", "default_source", "not text"),
        ("default_read_on: soon\n", "default_read_on", "not a date"),
        ('accelerators:\n- {id: "", SRC}\n', "accelerators[0].id", "no id"),
        ('accelerators:\n- {id: "a b", SRC}\n', "accelerators[0].id", "no id"),
        ("models:\n- {id: llama-3.1-8b, kv_heads: 7, SRC}\n", "kv_heads", "do not divide 32"),
        ("models:\n- {id: llama-3.1-8b, kv_heads: 0, SRC}\n", "kv_heads", "is 0"),
        ("models:\n- {id: llama-3.1-8b, layers: 10001, SRC}\n", "layers", "10001 layers"),
        (f"models:\n- {{id: llama-3.1-8b, layers: 1{'0' * 20}, SRC}}\n", "layers", "no count"),
        (
            "accelerators:\n- {id: l4, src: {memory: nosuch}, read_on: 2026-11-30}\n",
            "l4.src.memory",
            '"nosuch" is no source',
        ),
        (
            "accelerators:\n- id: l4\n  source: x\n  read_on: 2026-11-30\n"
            "  prices_usd_per_accelerator_hour: [{kind: spot, usd_per_hour: 1, src: nosuch}]\n",
            "prices_usd_per_accelerator_hour[0].src",
            '"nosuch" is no source',
        ),
    ],
    ids=lambda case: str(case)[:40],
)
def test_a_users_file_is_refused_with_its_place(tmp_path, monkeypatch, text, where, problem):
    path = tmp_path / "mine.yaml"
    text = text if isinstance(text, bytes) else text.replace("SRC", SRC).encode()
    path.write_bytes(text)
    monkeypatch.setenv("RIDGELINE_CATALOG", str(path))
    with pytest.raises(CatalogError) as raised:
        rows("models"), rows("accelerators")
    assert where in raised.value.where
    assert problem in raised.value.problem
    assert raised.value.remedy
    assert len(str(raised.value)) < 1000


SRC = "source: x, read_on: 2026-11-30"


def test_a_source_that_the_file_declares_or_that_is_ours_can_be_used():
    ours = next(iter(sources("accelerators")))
    for key in ("bench", ours):
        row = {"id": "l4", "tdp_w": 70, "src": {"tdp": key}, "read_on": "2026-11-30"}
        with overlay({"sources": {"bench": "my bench"}, "accelerators": [row]}):
            assert accelerator("l4").tdp_w.value == 70
