# ruff: noqa: E501 - a table of one-line specs and what is said of them
import json

import jsonschema
import pytest
import yaml

from ridgeline.errors import SpecError
from ridgeline.serving.spec import RidgelineEngine, UrlEngine
from ridgeline.spec import json_schema, load, parse

ONE = "models: [{name: a, model: m}]"


def complaint(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse(text, name="p.yaml")
    return str(caught.value)


def test_the_least_spec_is_one_model_on_our_engine():
    platform = parse(ONE, name="p.yaml")
    assert platform.models[0].engine == RidgelineEngine()
    assert (platform.gateway.host, platform.gateway.port) == ("127.0.0.1", 8000)


def test_an_engine_without_kind_is_ours():
    engine = (
        parse("models: [{name: a, model: m, engine: {dtype: fp32}}]", name="p").models[0].engine
    )
    assert engine == RidgelineEngine(dtype="fp32")


@pytest.mark.parametrize(
    ("written", "read"), [("off", "off"), ("'off'", "off"), ("ngram", "ngram")]
)
def test_speculation_may_be_off_as_yaml_reads_it(written, read):
    text = f"models: [{{name: a, model: m, engine: {{speculation: {written}}}}}]"
    assert parse(text, name="p").models[0].engine.speculation == read
    assert "'off' or 'ngram'" in complaint(text.replace(written, "on"))


def test_servers_that_run_already_join_by_url():
    text = "models: [{name: a, engine: {kind: url, urls: ['http://h:1', 'http://h:2']}}]"
    assert parse(text, name="p").models[0].engine == UrlEngine(
        kind="url", urls=["http://h:1", "http://h:2"]
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("models: [{name: a, model: m, engine: {dtpye: bf16}}]", ["models[0].engine.dtpye: unknown key", "try: 'dtype' (nearest)"]),
        ("models: [{name: a, model: m, zzz: 1}]", ["models[0].zzz: unknown key", "try: one of: engine, max_output_tokens, model"]),
        ("modles: []", ["modles: unknown key", "'models' (nearest)", "models: is missing"]),
        ("models: [{name: a, model: m, engine: {threads: -1}}]", ["models[0].engine.threads: -1", "0 or more"]),
        ("models: [{name: a, model: m, engine: {kv_cache: lots}}]", ["engine.kv_cache: 'lots' is not a size"]),
        ("models: [{name: a, model: m, engine: {kv_cache: 0}}]", ["engine.kv_cache", "more than 0"]),
        ("models: [{name: a, model: m, engine: {dtype: int3}}]", ["engine.dtype: 'int3'", "'bf16', 'fp32' or 'int8'"]),
        ("models: [{name: a, model: m, engine: {kind: sglan}}]", ["models[0].engine", "'vllm', 'sglang', 'fake', 'url'"]),
        ("models: [{name: a}]", ["models[0]", "needs `model`"]),
        ("models: [{name: a, engine: {kind: url, urls: [ftp://x]}}]", ["models[0].engine", "ftp://x"]),
        ("models: [{name: a, engine: {kind: url, urls: ['http://h:99999']}}]", ["models[0].engine", "h:99999"]),
        ("models: [{name: a, engine: {kind: url, urls: ['http://[::1']}}]", ["models[0].engine", "[::1"]),
        ("models: [{name: a, model: m}, {name: a, model: n}]", ["two models are called 'a'"]),
        (ONE + "\ngateway: {listen: 0.0.0.0:80}", ["gateway: listen '0.0.0.0:80'", "api_key_env"]),
        (ONE + "\ngateway: {listen: nowhere}", ["gateway", "not address:port"]),
        (ONE + "\ngateway: {listen: 127.0.0.1:99999}", ["gateway", "not address:port"]),
        (ONE + "\nname: A b", ["name: 'A b'", "lower-case"]),
        (ONE + "\nname: x\nname: y", ["line 3", "'name' stands here twice"]),
        ("models: [", ["line 1", "mend the YAML"]),
        ("- 1", ["is not a mapping"]),
        ("", ["is not a mapping"]),
        ("models: []", ["models", "at least 1"]),
    ],
)  # fmt: skip
def test_a_complaint_names_field_problem_and_remedy(text, parts):
    said = complaint(text)
    assert all(part in said for part in parts), said


def test_every_complaint_is_listed_at_once():
    said = complaint("models: [{name: a, model: m, engine: {dtpye: 1, threads: -1}, routng: {}}]")
    assert said.count("models[0]") == 3


def test_an_open_address_is_allowed_with_a_key():
    text = ONE + "\ngateway: {listen: '[::]:80', api_key_env: KEY}"
    assert parse(text, name="p").gateway.host == "::"


def test_a_file_that_is_not_there_says_how_to_get_one(tmp_path):
    with pytest.raises(SpecError, match="cannot be read") as caught:
        load(tmp_path / "platform.yaml")
    assert "ridgeline init" in str(caught.value)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    file = tmp_path / "platform.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="not UTF-8"):
        load(file)


def test_the_schema_accepts_what_the_loader_accepts():
    text = "models: [{name: a, model: m, engine: {kind: ridgeline, kv_cache: 1000}}]"
    json.dumps(json_schema())
    jsonschema.validate(yaml.safe_load(text), json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"models": [{"name": "a", "model": "m", "zzz": 1}]}, json_schema())
