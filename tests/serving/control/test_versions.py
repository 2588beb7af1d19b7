"""A version is named by what is in it."""

from ridgeline.serving.control.versions import read_version, version_of
from ridgeline.serving.spec import ModelSpec, Replicas


def spec(**engine) -> ModelSpec:
    told = {"name": "chat", "model": "smollm2-135m-instruct", "engine": engine}
    return ModelSpec.model_validate(told)


def test_the_same_version_has_the_same_name_and_another_one_another() -> None:
    assert version_of(spec()).id == version_of(spec(dtype="bf16")).id
    assert version_of(spec()).id != version_of(spec(dtype="int8")).id
    other = spec().model_copy(update={"model": "other.gguf"})
    assert version_of(spec()).id != version_of(other).id


def test_the_name_does_not_depend_on_what_is_no_part_of_it() -> None:
    scaled = spec().model_copy(update={"replicas": Replicas(min=3)})
    assert version_of(scaled).id == version_of(spec()).id


def test_it_goes_into_a_table_and_back_and_into_a_spec() -> None:
    version = version_of(spec(dtype="int8", kv_cache="2GB"))
    read = read_version(version.written())
    assert read == version
    assert read.id == version.id
    applied = read.applied(spec())
    assert version_of(applied).id == version.id
    assert applied.name == "chat"


def test_durations_survive_the_way_through_a_table() -> None:
    told = {"name": "chat", "engine": {"kind": "fake", "starting": "1500ms"}}
    fake = ModelSpec.model_validate(told)
    applied = read_version(version_of(fake).written()).applied(fake)
    assert applied == fake
