"""What a rollout is told of its new version before it gets any request."""

import pytest

from letters import Letters, serving
from ridgeline.errors import SpecError
from ridgeline.serving.control.likeness import is_alike
from ridgeline.serving.control.versions import Version
from ridgeline.serving.evaluate.evaluate import make_reference
from ridgeline.serving.evaluate.reference import read, stored, write

OLD = Version("m.gguf", {"dtype": "bf16"})
NEW = Version("m.gguf", {"dtype": "int8"})
NOBODY = "http://127.0.0.1:1"
OTHER = "{content}"


async def stored_of(server: Letters, *versions: Version) -> None:
    """What the server answers is the reference of those versions."""
    with serving(server) as url:
        made = await make_reference(url, "m")
    for version in versions:
        write(made, stored(version.id))


async def compared(server: Letters) -> tuple[bool, str]:
    """The new version's replica is this server."""
    with serving(server) as url:
        return await is_alike(NEW, OLD, url, "m")


async def test_without_a_reference_there_is_nothing_to_hold_it_to():
    alike, said = await is_alike(NEW, OLD, NOBODY, "m")
    assert alike
    assert said == f"no reference of {NEW.id} or of {OLD.id} is stored"


async def test_a_replica_as_its_reference_is_alike():
    await stored_of(Letters(), NEW)
    alike, said = await compared(Letters())
    assert alike
    assert "7 categories are as in the reference" in said
    assert OLD.id not in said


async def test_another_template_is_not_alike_and_is_named():
    await stored_of(Letters(), NEW)
    alike, said = await compared(Letters(template=OTHER))
    assert not alike
    assert said.startswith("template: ")


async def test_a_version_without_its_own_is_held_to_the_one_that_it_replaces():
    await stored_of(Letters(), OLD)
    alike, said = await compared(Letters(template=OTHER))
    assert not alike
    assert said.startswith("template: ")
    assert said.endswith(f"(beside the reference of {OLD.id})")
    assert not stored(NEW.id).exists()


async def test_one_that_answers_alike_is_held_to_the_same_from_then_on():
    await stored_of(Letters(), OLD)
    alike, said = await compared(Letters())
    assert alike
    assert said.endswith(f"(beside the reference of {OLD.id})")
    assert read(stored(NEW.id)) == read(stored(OLD.id))
    newest = Version("m.gguf", {"dtype": "fp32"})
    with serving(Letters(template=OTHER)) as url:
        alike, said = await is_alike(newest, NEW, url, "m")
    assert not alike
    assert said.endswith(f"(beside the reference of {NEW.id})")


async def test_one_that_is_meant_to_answer_otherwise_has_its_own():
    await stored_of(Letters(), OLD)
    await stored_of(Letters(template=OTHER), NEW)
    alike, _ = await compared(Letters(template=OTHER))
    assert alike
    alike, _ = await compared(Letters())
    assert not alike


@pytest.mark.parametrize("version", [OLD, NEW])
async def test_a_reference_that_cannot_be_read_is_no_pass(version):
    stored(version.id).parent.mkdir(parents=True)
    stored(version.id).write_text("{")
    with pytest.raises(SpecError, match="is no reference"):
        await is_alike(NEW, OLD, NOBODY, "m")
