"""How people name a version."""

import pytest

from ridgeline.errors import ModelError
from ridgeline.serving.models.references import Reference, check_name, is_reference, parse


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("sha256:" + "a" * 64, Reference(digits="a" * 64)),
        ("sha256:12345678", Reference(digits="12345678")),
        ("12345678", Reference(digits="12345678")),
        ("1234567", Reference(name="1234567")),
        ("chat", Reference(name="chat")),
        ("store:chat:v2", Reference(name="chat:v2")),
        ("org/chat", Reference(name="org/chat")),
    ],
)
def test_what_is_meant(text, meant):
    assert parse(text) == meant


@pytest.mark.parametrize("text", ["sha256:", "sha256:123", "sha256:XYZXYZXYZ", "", "store:", "a b"])
def test_what_means_nothing(text):
    with pytest.raises(ModelError):
        parse(text)


def test_a_name_cannot_be_taken_for_an_id():
    with pytest.raises(ModelError, match="is no name"):
        check_name("deadbeef")
    check_name("deadbeef:v1")


@pytest.mark.parametrize("named", ["chat", "./sha256", "smollm2-135m-instruct", "/x.gguf"])
def test_in_a_spec_only_these_mean_the_store(named):
    assert not is_reference(named)
    assert is_reference("store:chat")
    assert is_reference("sha256:12345678")
