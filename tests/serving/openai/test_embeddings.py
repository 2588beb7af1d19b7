import base64
import struct
from typing import Any

import msgspec
import pytest

from ridgeline.serving.openai import ApiError, read
from ridgeline.serving.openai.embeddings import MOST_INPUTS, EmbeddingRequest, embedding_answer


def asked(given: Any, **more: Any) -> EmbeddingRequest:
    return read(msgspec.json.encode({"model": "m", "input": given, **more}), EmbeddingRequest)


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
    ],
)
def test_every_form_of_input(given: Any, texts: Any) -> None:
    assert asked(given).texts() == texts


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("", "empty"),
        ([], "empty"),
        (["a", ""], "input 1 is empty"),
        ([[1], []], "input 1 is empty"),
        (["a", 1], "mixes"),
        (["a", [1]], "mixes"),
        (["a"] * (MOST_INPUTS + 1), "2048 is the most"),
    ],
)
def test_wrong_input_is_refused(given: Any, problem: str) -> None:
    with pytest.raises(ApiError, match=problem) as refused:
        asked(given).texts()
    assert refused.value.param == "input"


@pytest.mark.parametrize(
    ("field", "value"), [("dimensions", 0), ("encoding_format", "int8"), ("input", {"a": 1})]
)
def test_wrong_values_name_their_field(field: str, value: Any) -> None:
    body = {"model": "m", "input": "a", field: value}
    with pytest.raises(ApiError) as refused:
        read(msgspec.json.encode(body), EmbeddingRequest)
    assert refused.value.param == field


def test_both_encodings_say_the_same_numbers() -> None:
    vector = struct.pack("<3f", 0.5, -1.25, 3.0)
    plain = embedding_answer([vector], model="m", prompt_tokens=4, base64_wanted=False)
    coded = embedding_answer([vector], model="m", prompt_tokens=4, base64_wanted=True)
    assert plain["data"][0]["embedding"] == [0.5, -1.25, 3.0]
    assert base64.b64decode(coded["data"][0]["embedding"]) == vector
    assert plain["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
