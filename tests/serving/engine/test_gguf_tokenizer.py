import inspect
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.serving.engine.tiny_models import write_tiny
from tokenizers import Regex, pre_tokenizers
from transformers.convert_slow_tokenizer import TikTokenConverter
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from ridgeline.errors import ModelError
from ridgeline.serving.engine.gguf_format import GgufHead, read_head
from ridgeline.serving.engine.gguf_tokenizer import build_tokenizer
from ridgeline.serving.engine.model_files import open_model
from ridgeline.serving.engine.tokenizer import Tokenizer

LLAMA3_REGEX = inspect.signature(TikTokenConverter).parameters["pattern"].default
TEXTS = st.text(st.sampled_from(list("ab Zé½7 09'srelv\n\r\t.,!(日🙂")), max_size=40)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> GgufHead:
    return read_head(write_tiny(tmp_path_factory.mktemp("gguf") / "tiny.gguf", layout="gguf"))


def altered(head: GgufHead, **changes: Any) -> GgufHead:
    fields = {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    return GgufHead(head.path, head.size_bytes, {**head.metadata, **fields}, head.tensors)


def with_all_bytes_only(head: GgufHead, pre: str) -> Tokenizer:
    """No merges but one, so that what is merged shows where text was cut."""
    return build_tokenizer(altered(head, pre=pre, merges=["7 7"], tokens=_tokens(head, "77")))


def _tokens(head: GgufHead, more: str) -> list[str]:
    tokens = list(head.metadata["tokenizer.ggml.tokens"])
    if more not in tokens:
        tokens[-1] = more
    return tokens


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_vocabulary_in_a_gguf_encodes_as_its_tokenizer_json(
    both: tuple[Tokenizer, Tokenizer], text: str
) -> None:
    gguf, folder = both
    assert gguf.encode(text) == folder.encode(text)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Tokenizer]:
    path = tmp_path_factory.mktemp("both")
    gguf = open_model(write_tiny(path / "tiny.gguf", layout="gguf"))
    return gguf.tokenizer, open_model(write_tiny(path / "hf")).tokenizer


@given(text=TEXTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@pytest.mark.parametrize(
    ("pre", "regex"), [("qwen2", PRETOKENIZE_REGEX), ("llama-bpe", LLAMA3_REGEX)]
)
def test_text_is_cut_where_the_published_expression_cuts(
    head: GgufHead, pre: str, regex: str, text: str
) -> None:
    published = pre_tokenizers.Split(Regex(regex), behavior="isolated")
    ours = build_tokenizer(altered(head, pre=pre))._backend.pre_tokenizer
    assert [span for _, span in ours.pre_tokenize_str(text)] == [
        span for _, span in published.pre_tokenize_str(text)
    ]


@pytest.mark.parametrize(
    ("pre", "merged"),
    [("gpt-2", True), ("smollm", False), ("llama-bpe", True), ("llama3", True), ("qwen2", False)],
)
def test_digits_are_split_where_the_family_splits_them(
    head: GgufHead, pre: str, merged: bool
) -> None:
    assert len(with_all_bytes_only(head, pre).encode("77")) == (1 if merged else 2)


def test_llama3_groups_digits_by_three(head: GgufHead) -> None:
    cutter = build_tokenizer(altered(head, pre="llama-bpe"))._backend.pre_tokenizer
    assert [word for word, _ in cutter.pre_tokenize_str("12345")] == ["123", "45"]


def test_llama3_takes_whole_words_without_merges(head: GgufHead) -> None:
    tokens = _tokens(head, "zqzq")
    for pre, count in (("llama-bpe", 1), ("gpt-2", 4)):
        tokenizer = build_tokenizer(altered(head, pre=pre, tokens=tokens, merges=[]))
        assert len(tokenizer.encode("zqzq")) == count


def test_qwen2_composes_accents(head: GgufHead) -> None:
    composed, apart = "é", "e\u0301"
    qwen2 = build_tokenizer(altered(head, pre="qwen2"))
    assert qwen2.encode(apart) == qwen2.encode(composed)
    gpt2 = build_tokenizer(altered(head, pre="gpt-2"))
    assert gpt2.encode(apart) != gpt2.encode(composed)


def test_user_defined_tokens_are_whole_and_visible(head: GgufHead) -> None:
    types = list(head.metadata["tokenizer.ggml.token_type"])
    types[2] = 4
    tokenizer = build_tokenizer(altered(head, token_type=types))
    ids = tokenizer.encode("a<|im_end|>")
    assert ids[-1] == 2
    assert tokenizer.decode(ids) == "a<|im_end|>"
    assert tokenizer.special_ids == {0, 1}


@pytest.mark.parametrize(
    ("pre", "declared", "adds"),
    [
        ("llama-bpe", None, True),
        ("gpt-2", None, False),
        ("gpt-2", True, True),
        ("llama-bpe", False, False),
    ],
)
def test_a_beginning_is_expected_as_declared_or_as_the_family_does(
    head: GgufHead, pre: str, declared: bool | None, adds: bool
) -> None:
    changed = altered(head, pre=pre, add_bos_token=declared)
    if declared is None:
        del changed.metadata["tokenizer.ggml.add_bos_token"]
    assert build_tokenizer(changed).adds_bos is adds


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "llama"}, "kind 'llama'"),
        ({"model": None}, "kind None"),
        ({"pre": "tekken"}, "'tekken'"),
        ({"pre": "default"}, "'default'"),
        ({"tokens": []}, "no usable vocabulary"),
        ({"merges": ["a b c"]}, "no usable vocabulary"),
        ({"merges": ["zz qq"]}, "do not fit"),
    ],
)
def test_what_may_give_wrong_ids_is_refused(
    head: GgufHead, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(ModelError, match=says) as caught:
        build_tokenizer(altered(head, **changes))
    assert "tokenizer.json" in caught.value.remedy


def test_opening_does_not_need_the_tokenizer_to_be_readable(tmp_path: Path) -> None:
    file = write_tiny(tmp_path / "m.gguf", layout="gguf")
    file.write_bytes(file.read_bytes().replace(b"smollm", b"smullm"))
    files = open_model(file)
    assert files.tensors()
    with pytest.raises(ModelError, match="smullm"):
        _ = files.tokenizer
