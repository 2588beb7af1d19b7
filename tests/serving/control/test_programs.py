"""What vLLM and SGLang are told. Their options are those that they document."""

import stat

import pytest

from ridgeline.catalog.packaged import DEFAULT_MODEL, find_model
from ridgeline.errors import LaunchError, ModelError
from ridgeline.serving.control.programs import program_of
from ridgeline.serving.spec import ModelSpec


@pytest.fixture
def program(tmp_path):
    """A program of that name."""

    def make(name):
        path = tmp_path / name
        path.touch()
        path.chmod(stat.S_IRWXU)
        return str(path)

    return make


def model(**engine):
    return ModelSpec(name="chat", model="org/some-model", engine=engine)


def argv(engine):
    return program_of(model(**engine), "models chat.engine").command(51161)


def test_what_is_left_open_is_left_to_vllm(program):
    path = program("vllm")
    assert argv({"kind": "vllm", "command": path}) == [
        *(path, "serve", "org/some-model"),
        *("--host", "127.0.0.1", "--port", "51161", "--served-model-name", "chat"),
        *("--tensor-parallel-size", "1", "--max-num-seqs", "256"),
    ]


ALL = {
    "tensor_parallel": 4,
    "dtype": "fp8",
    "kv_dtype": "fp8",
    "max_model_len": 8192,
    "max_seqs": 128,
    "memory_share": 0.85,
    "args": ["--trust-remote-code", "--seed=7"],
}


def test_all_that_can_be_said_to_vllm(program):
    path = program("vllm")
    assert argv({"kind": "vllm", "command": path, **ALL}) == [
        *(path, "serve", "org/some-model"),
        *("--host", "127.0.0.1", "--port", "51161", "--served-model-name", "chat"),
        *("--tensor-parallel-size", "4", "--max-num-seqs", "128"),
        *("--quantization", "fp8", "--kv-cache-dtype", "fp8", "--max-model-len", "8192"),
        *("--gpu-memory-utilization", "0.85", "--trust-remote-code", "--seed=7"),
    ]


def test_all_that_can_be_said_to_sglang(program):
    path = program("sglang")
    assert argv({"kind": "sglang", "command": path, **ALL}) == [
        *(path, "serve", "--model-path", "org/some-model"),
        *("--host", "127.0.0.1", "--port", "51161", "--served-model-name", "chat"),
        *("--tensor-parallel-size", "4", "--max-running-requests", "128"),
        *("--quantization", "fp8", "--kv-cache-dtype", "fp8_e4m3", "--context-length", "8192"),
        *("--mem-fraction-static", "0.85", "--enable-metrics", "--trust-remote-code", "--seed=7"),
    ]


@pytest.mark.parametrize(
    ("ours", "theirs"), [("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")]
)
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_number_formats_are_said_in_their_words(program, kind, ours, theirs):
    told = argv({"kind": kind, "command": program(kind), "dtype": ours})
    assert told[told.index("--dtype") + 1] == theirs


def test_a_key_for_other_servers_does_not_shut_us_out(program):
    made = program_of(model(kind="vllm", command=program("vllm"), env={"A": "b"}), "x")
    assert made.env == {"VLLM_API_KEY": "", "A": "b"}


def test_weights_that_are_here_are_told_by_their_whole_path(program, tmp_path, monkeypatch):
    path, folder = program("vllm"), tmp_path / "weights"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    for named in (str(folder), "./weights", "weights"):
        spec = ModelSpec(name="chat", model=named, engine={"kind": "vllm", "command": path})
        assert program_of(spec, "x").command(1)[2] == str(folder)


def test_a_place_that_is_not_there_is_not_taken_for_a_name(program):
    spec = ModelSpec(name="c", model="./no/such", engine={"kind": "vllm", "command": program("v")})
    with pytest.raises(ModelError, match="neither a packaged model nor a file or folder"):
        program_of(spec, "x")


def test_a_packaged_model_is_told_by_its_file(program, monkeypatch):
    try:
        file = find_model(DEFAULT_MODEL)
    except ModelError as error:
        pytest.skip(str(error))
    spec = ModelSpec(
        name="c", model=DEFAULT_MODEL, engine={"kind": "vllm", "command": program("v")}
    )
    assert program_of(spec, "x").command(1)[2] == str(file)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_program_that_is_not_here_is_said_with_what_to_do(monkeypatch, tmp_path, kind):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError) as caught:
        program_of(model(kind=kind), "models chat.engine")
    assert str(caught.value) == (
        f"models chat.engine.command: the program '{kind}' is not here\n"
        f"  try: pip install {kind}, into an environment of its own; "
        f"and command: /that/environment/bin/{kind}"
    )
