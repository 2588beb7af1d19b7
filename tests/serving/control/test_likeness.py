"""What a rollout is told of its new version before it gets any request."""

from dataclasses import replace

import pytest

from letters import Letters, serving
from ridgeline.errors import SpecError
from ridgeline.serving.control.likeness import is_alike
from ridgeline.serving.control.versions import Version
from ridgeline.serving.evaluate.evaluate import make_reference
from ridgeline.serving.evaluate.reference import stored, write

VERSION = Version("m.gguf", {"dtype": "bf16"})


@pytest.fixture
async def good():
    server = Letters()
    with serving(server) as url:
        write(await make_reference(url, "m"), stored(VERSION.id))
    return server


async def test_without_a_reference_there_is_nothing_to_hold_it_to():
    alike, said = await is_alike(VERSION, "http://127.0.0.1:1", "m")
    assert alike
    assert said == f"no reference of {VERSION.id} is stored"


async def test_a_replica_as_the_reference_is_alike(good):
    with serving(replace(good)) as url:
        alike, said = await is_alike(VERSION, url, "m")
    assert alike
    assert "7 categories are as in the reference" in said


async def test_another_template_is_not_alike_and_is_named(good):
    with serving(replace(good, template="{content}")) as url:
        alike, said = await is_alike(VERSION, url, "m")
    assert not alike
    assert said.startswith("template: ")


async def test_another_version_has_its_own_reference(good):
    other = Version("m.gguf", {"dtype": "int8"})
    assert await is_alike(other, "http://127.0.0.1:1", "m") == (
        True,
        f"no reference of {other.id} is stored",
    )


async def test_a_reference_that_cannot_be_read_is_no_pass():
    stored(VERSION.id).parent.mkdir(parents=True)
    stored(VERSION.id).write_text("{")
    with pytest.raises(SpecError, match="is no reference"):
        await is_alike(VERSION, "http://127.0.0.1:1", "m")
