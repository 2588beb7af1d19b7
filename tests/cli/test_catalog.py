"""`ridgeline catalog`: what it prints, its exit status, and a model added from its config."""

import json

import pytest
import yaml
from click.testing import CliRunner

from ridgeline.catalog.models import model
from ridgeline.cli import ridgeline_command
from ridgeline.errors import CatalogError

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "intermediate_size": 3072,
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def run(*words, status=0):
    done = CliRunner().invoke(ridgeline_command, ["catalog", *words], catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done.output


def test_list_says_how_much_there_is():
    lines = run("list").splitlines()
    assert lines[0].split()[:2] == ["54", "models"]
    assert lines[1].split()[:2] == ["35", "accelerators"]
    assert json.loads(run("list", "--json"))["models"] == 54


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("models", "llama-3.1-70b 70.6 B 69.5 B 327,680 B/token 131,072 gqa"),
        ("models", "mistral-7b-v0.1 7.24 B 7.11 B 536.9 MB in all 32,768 sliding"),
        ("models", "gpt-oss-20b 20.9 B 3.61 B 24,576 B/token 131,072 gqa: 12 sliding, 12 gqa"),
        ("accelerators", "h100-sxm 85.5 GB 3.35 TB/s 989 TFLOP/s 450 GB/s 700 W $2.95/h"),
        ("network", "quantum-2-qm9700 switch 64 ports 50 GB/s 747 W $35,000"),
        ("xids", "79 fatal drain_power_cycle GPU unreachable over PCIe."),
    ],
)
def test_list_of_a_kind_has_a_line_for_each(kind, line):
    lines = [" ".join(one.split()) for one in run("list", kind).splitlines()]
    assert line in lines
    assert lines[-1].startswith("ridgeline catalog show ")


@pytest.mark.parametrize("kind", ["models", "accelerators", "network", "xids"])
def test_list_as_json_has_the_rows(kind):
    listed = json.loads(run("list", kind, "--json"))
    assert all(one["id"] and one["read_on"] for one in listed)


def test_nothing_is_padded_at_the_end_of_a_line():
    for words in (["list", "models"], ["show", "h100"], ["check"]):
        assert [line for line in run(*words).splitlines() if line != line.rstrip()] == []


def test_show_has_values_with_sources_and_what_follows():
    lines = [" ".join(one.split()) for one in run("show", "H100").splitlines()]
    assert lines[0] == "H100 SXM5 80 GB (accelerators: h100-sxm)"
    assert "sold_bytes 85.899 GB A capacity sold" in lines
    assert "memory_bytes 85.521 GB B as the driver reports it" in lines
    assert "ridge, bf16 295.34 FLOP/B" in lines
    assert any(line.startswith("source B: nvidia-smi") for line in lines)
    assert any("2:4 sparse" in line for line in lines if line.startswith("note: "))


def test_show_of_a_model_has_its_caches_and_weights():
    lines = [" ".join(one.split()) for one in run("show", "gpt-oss-120b").splitlines()]
    for line in (
        "params 116,829,156,672 params A",
        "weights, native 65.249 GB",
        "cache per token, bf16 36,864 B/token",
        "windows and states per sequence, bf16 4.7186 MB",
        "one routed expert, one layer 24,883,200 params",
    ):
        assert line in lines


@pytest.mark.parametrize(
    "name", ["llama-3-70b", "b200", "qm9700", "xid 79", "79", "all-minilm-l6-v2"]
)
def test_show_as_json_has_units_and_sources(name):
    data = json.loads(run("show", name, "--json"))
    assert data["row"]["read_on"]
    for one in data["values"].values():
        assert one["source"]
        assert one["value"] is not None
    doubtful = data["values"].get("memory_bytes_per_s", {}).get("interval")
    assert (doubtful == [7.7e12, 8.0e12]) == (name == "b200")


def test_show_reads_a_config_too(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    assert "114,688 B/token" in run("show", str(path))


def test_show_of_an_unknown_name_has_the_nearest():
    with pytest.raises(CatalogError) as raised:
        run("show", "h10")
    assert '"h100"' in raised.value.remedy


def test_check_passes_and_says_how_many_are_exact():
    output = run("check")
    assert "54 models recounted from their architecture: 39 to the last parameter" in output
    assert "0 not." in output
    assert "Nothing contradicts" in output
    assert json.loads(run("check", "--json"))["findings"] == []


def test_check_fails_over_two_percent(tmp_path, monkeypatch):
    path = tmp_path / "mine.yaml"
    row = {"id": "qwen3-8b", "published": {"total": 8_000_000_000}}
    path.write_text(yaml.safe_dump({"models": [row | {"source": "x", "read_on": "2026-11-30"}]}))
    monkeypatch.setenv("RIDGELINE_CATALOG", str(path))
    output = run("check", status=1)
    assert "+2.38%  WRONG" in output
    assert "1 not." in output


def test_check_fails_where_numbers_contradict(tmp_path, monkeypatch):
    path = tmp_path / "mine.yaml"
    row = {"id": "l4", "mig_max_instances": 5, "source": "x", "read_on": "2026-11-30"}
    path.write_text(yaml.safe_dump({"accelerators": [row]}))
    monkeypatch.setenv("RIDGELINE_CATALOG", str(path))
    assert "l4.mig_max_instances: 5" in run("check", status=1)


# add-model


def test_a_model_is_added_counted_and_found_again(tmp_path, monkeypatch):
    folder, own = tmp_path / "Tiny-0.6B", tmp_path / "mine.yaml"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    output = run("add-model", str(folder / "config.json"), "--file", str(own))
    assert output.startswith("tiny-0.6b: 596 M parameters, 596 M active, 114,688 B/token of cache")
    assert f"RIDGELINE_CATALOG={own}" in output
    monkeypatch.setenv("RIDGELINE_CATALOG", str(own))
    assert model("tiny-0.6b").params.value == 596_049_920
    assert str(folder) in model("tiny-0.6b").params.source
    assert json.loads(run("check", "--json"))["findings"] == []


def test_a_model_is_added_beside_others_and_replaces_itself(tmp_path):
    path, own = tmp_path / "config.json", tmp_path / "mine.yaml"
    path.write_text(json.dumps(CONFIG))
    own.write_text("accelerators:\n- {id: l4, tdp_w: 75, source: x, read_on: 2026-11-30}\n")
    for name in ("one", "two", "one"):
        run("add-model", str(path), "--id", name, "--file", str(own), "--source", "the hub")
    written = yaml.safe_load(own.read_text())
    assert [row["id"] for row in written["models"]] == ["one", "two"]
    assert written["models"][0]["source"] == "the hub"
    assert written["accelerators"][0]["tdp_w"] == 75


def test_the_file_is_the_one_in_use_when_none_is_named(tmp_path, monkeypatch):
    path, own = tmp_path / "config.json", tmp_path / "own.yaml"
    path.write_text(json.dumps(CONFIG))
    own.write_text("models: []\n")
    monkeypatch.setenv("RIDGELINE_CATALOG", str(own))
    assert json.loads(run("add-model", str(path), "--id", "tiny", "--json"))["id"] == "tiny"
    assert model("tiny").id == "tiny"


def test_a_config_that_cannot_be_read_leaves_the_file_as_it_was(tmp_path):
    path, own = tmp_path / "config.json", tmp_path / "mine.yaml"
    path.write_text(json.dumps(CONFIG | {"architectures": ["MambaForCausalLM"]}))
    with pytest.raises(CatalogError, match="MambaForCausalLM"):
        run("add-model", str(path), "--file", str(own))
    assert not own.exists()


def test_a_name_that_is_taken_by_another_models_alias_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    with pytest.raises(CatalogError, match="already a name of"):
        run("add-model", str(path), "--id", "llama-3-70b", "--file", str(tmp_path / "mine.yaml"))


def test_a_model_of_ours_is_hidden_only_on_request_and_that_is_said(tmp_path, monkeypatch):
    path, own = tmp_path / "config.json", tmp_path / "mine.yaml"
    path.write_text(json.dumps(CONFIG))
    words = ("add-model", str(path), "--id", "Llama-3.1-70B", "--file", str(own))
    with pytest.raises(CatalogError, match="which this would hide") as raised:
        run(*words)
    assert "--replace" in raised.value.remedy
    assert not own.exists()
    assert "now hides the one that Ridgeline ships" in run(*words, "--replace")
    monkeypatch.setenv("RIDGELINE_CATALOG", str(own))
    assert model("llama-3.1-70b").params.value == 596_049_920


def test_a_missing_folder_is_refused_with_the_command_that_makes_it(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    with pytest.raises(CatalogError) as raised:
        run("add-model", str(path), "--id", "a", "--file", str(tmp_path / "none" / "mine.yaml"))
    assert raised.value.remedy.startswith("mkdir -p ")


def test_an_empty_name_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    with pytest.raises(CatalogError, match="is empty"):
        run("add-model", str(path), "--id", "", "--file", str(tmp_path / "mine.yaml"))


def test_show_says_what_is_wrong_with_the_file_and_not_that_the_name_is_unknown(
    tmp_path, monkeypatch
):
    path = tmp_path / "mine.yaml"
    path.write_text("models:\n- {id: l, source: x, read_on: 2026-13-45}\n")
    monkeypatch.setenv("RIDGELINE_CATALOG", str(path))
    with pytest.raises(CatalogError, match="month must be"):
        run("show", "l4")
