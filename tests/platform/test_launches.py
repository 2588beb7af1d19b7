"""From a model's spec to how each of its replicas is started."""

import pytest

import stand_in_server
from ridgeline.errors import LaunchError, ModelError, SpecError
from ridgeline.platform.launches import has_devices, launch_of
from ridgeline.serving.control.foreign import ForeignLaunch
from ridgeline.serving.control.replicas import Launch
from ridgeline.serving.models.weights import model_store
from ridgeline.serving.spec import ModelSpec
from ridgeline.spec import Platform

SMI = "#!/bin/sh\nprintf '%s\\n' '0, GPU-a, H100' '1, GPU-b, H100'\n"


@pytest.fixture
def vllm(tmp_path, monkeypatch):
    """A model on vLLM, on a machine with two devices."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o700)
    path = stand_in_server.executable(tmp_path)

    def make(replicas=1, **engine):
        told = {"kind": "vllm", "command": str(path), **engine}
        return ModelSpec(name="org/m", model="w", engine=told, replicas={"min": replicas})

    return make


def of(model, logs):
    return launch_of(Platform(name="p", models=[model]), model, logs, label="@abc")


def test_a_replica_of_vllm_has_its_name_and_its_log(tmp_path, vllm):
    launch = of(vllm(2), tmp_path)(1)
    assert isinstance(launch, ForeignLaunch)
    assert launch.name == "org/m@abc-1"
    assert launch.log == tmp_path / "org_m_abc-1.log"


async def test_replicas_get_devices_of_their_own_and_give_them_back(tmp_path, vllm):
    model = vllm(2)
    launches = [of(model, tmp_path)(number) for number in range(2)]
    processes = [await launch.start() for launch in launches]
    assert not has_devices(model)
    with pytest.raises(LaunchError, match="1 devices are needed, and 0 of 2 free"):
        await of(model, tmp_path)(2).start()
    for process, launch in zip(processes, launches, strict=True):
        await anext(process.events())
        await process.kill()
        launch.close()
    assert has_devices(model)


def test_what_can_never_be_is_said_before_anything_starts(tmp_path, vllm):
    with pytest.raises(SpecError, match="3 replicas of 1 devices need 3; 2 are here") as caught:
        of(vllm(3), tmp_path)
    assert caught.value.where == "models org/m.engine"
    assert not has_devices(vllm(1, tensor_parallel=4))


def test_a_program_that_is_not_here_is_said(tmp_path, vllm):
    with pytest.raises(LaunchError, match="'/no/vllm' is not here"):
        of(vllm(command="/no/vllm"), tmp_path)


def test_our_own_are_started_as_ever(tmp_path):
    launch = of(ModelSpec(name="f", engine={"kind": "fake"}), tmp_path)(0)
    assert isinstance(launch, Launch)
    assert launch.argv[2:4] == ["ridgeline", "fake-replica"]


async def test_a_version_of_the_store_stays_while_a_replica_of_vllm_has_it(
    tmp_path, vllm, monkeypatch
):
    monkeypatch.setenv("RIDGELINE_MODELS", str(tmp_path / "models"))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    store = model_store()
    version = store.add(str(folder), name="mine")
    launch = of(vllm().model_copy(update={"model": version.id}), tmp_path)(0)
    process = await launch.start()
    with pytest.raises(ModelError, match="in use"):
        store.remove("store:mine")
    await process.kill()
    launch.close()
    assert store.remove("store:mine").is_gone
