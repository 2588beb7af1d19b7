"""One spec with another value at a key."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.variants import variants

SPEC = """
models:
  - name: chat
    engine: {kind: fake}
    replicas: {min: 1, max: 2}
  - name: other
    engine: {kind: fake}
tenants:
  - {name: search, weight: 2}
"""


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(SPEC)
    return path


def test_a_key_of_the_model_that_is_asked(spec):
    some = variants(spec, "replicas.max=2,4,8", "other")
    assert [one.name for one in some] == ["2", "4", "8"]
    assert [one.platform.models[1].replicas.max for one in some] == [2, 4, 8]
    assert [one.platform.models[0].replicas.max for one in some] == [2, 2, 2]


def test_a_whole_path_by_names_and_numbers(spec):
    for key in ("models.chat.routing.policy", "models.0.routing.policy"):
        some = variants(spec, f"{key}=least-load, prefix-sticky", "other")
        policies = [one.platform.models[0].routing.policy for one in some]
        assert policies == ["least-load", "prefix-sticky"]
    weights = [
        one.platform.tenants[0].weight
        for one in variants(spec, "tenants.search.weight=1,3", "chat")
    ]
    assert weights == [1, 3]


def test_a_value_may_be_a_mapping(spec):
    some = variants(spec, "replicas={min: 1, max: 3},{min: 2}", "chat")
    assert [one.platform.models[0].replicas.min for one in some] == [1, 2]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("replicas.max=2", "no two values"),
        ("replicas.max=2,2", "no two values"),
        ("=1,2", "no two values"),
        ("replicas.max=1,[", "not YAML"),
        ("replicas.most=1,2", "unknown key"),
        ("models.nobody.slots=1,2", "chat, other"),
        ("models.chat.name.first=1,2", "no keys at this place"),
        ("routing.policy=best,worst", "routing.policy"),
    ],
)
def test_what_is_no_variant_is_an_error(spec, text, complaint):
    with pytest.raises(SpecError, match=complaint):
        variants(spec, text, "chat")
