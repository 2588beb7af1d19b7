"""A platform's spec as the simulator's values: `ridgeline simulate serving`.

What cannot be simulated is an error and never left out: an answer to another question is none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from ridgeline.errors import RidgelineError, SpecError
from ridgeline.platform.simulated_engine import with_simulated
from ridgeline.platform.simulated_places import (
    check_devices,
    grouped,
    home_of,
    place_of,
    regions_of,
    residency_of,
    with_role,
)
from ridgeline.serving.control.target import settings_of, target_for
from ridgeline.serving.fake.timing import MEMORY_SHARE, Machine, Plain, machine
from ridgeline.serving.policy.scale_rules import RULES
from ridgeline.serving.schedule import Floor, floor_at
from ridgeline.serving.simulate.setup import (
    BEGINS_UNIX_S,
    Engine,
    Gateway,
    Model,
    Scaling,
    Serving,
    Tenant,
)
from ridgeline.serving.simulated_spec import Simulated
from ridgeline.serving.spec import (
    FakeEngine,
    ModelSpec,
    RidgelineEngine,
    ServerEngine,
    UrlEngine,
    VllmEngine,
)
from ridgeline.serving.tenant_spec import TenantSpec
from ridgeline.spec import HardwareSpec, Platform, RegionSpec

_BLOCK_TOKENS = 16
#: What vLLM's scheduler takes in one step where nobody says: its default since V1.
_VLLM_BATCHED_TOKENS = 8192
#: Arguments of vLLM and SGLang that the simulator understands, and what they set.
_ARGS = {
    "--max-num-batched-tokens": "max_batched_tokens",
    "--chunked-prefill-size": "max_batched_tokens",
    "--block-size": "block_tokens",
    "--page-size": "block_tokens",
}
_OFF = {
    "--no-enable-prefix-caching": "prefix_caching",
    "--disable-radix-cache": "prefix_caching",
    "--no-async-scheduling": "ahead",
}
_DTYPES = {"auto": "bf16", "fp16": "bf16"}


def serving_of(
    platform: Platform, *, machines: Mapping[str, Machine] | None = None, seed: int = 0
) -> Serving:
    """What the spec describes, to be simulated; `machines` stand for models by name.

    Raises SpecError for what the simulator does not model, CatalogError for unknown names.
    """
    given, there = machines or {}, _There.of(platform)
    models = [kind for one in platform.models for kind in _kinds(one, there, given.get(one.name))]
    check_devices(models, there.hardware)
    return Serving(
        tuple(models),
        tuple(_tenant(one, platform.regions) for one in platform.tenants),
        Gateway(workers=platform.gateway.workers),
        seed=seed,
        pools={one.name: one.gpus for one in platform.hardware},
        regions=regions_of(platform.regions),
    )


@dataclass(frozen=True, slots=True)
class _There:
    """What models are placed on, and who may ask for them."""

    hardware: Mapping[str, HardwareSpec]
    regions: Sequence[RegionSpec]
    tenants: Sequence[str]

    @classmethod
    def of(cls, platform: Platform) -> "_There":
        """Of a platform."""
        hardware = {one.name: one for one in platform.hardware}
        return cls(hardware, platform.regions, [one.name for one in platform.tenants])


def _kinds(spec: ModelSpec, there: _There, given: Machine | None) -> list[Model]:
    """The model's own replicas, and those of its groups."""
    told = spec.simulated or Simulated()
    found = [with_role(_model(spec, there, given), told.role, told.prefill)]
    for group in told.groups:
        if group.on not in there.hardware:
            raise SpecError(
                f"{group.on!r} is no `hardware`",
                where=f"models {spec.name}.simulated.groups {group.name}.on",
                remedy=f"one of: {', '.join(there.hardware)}",
            )
        one = _model(grouped(spec, group), there, None)
        one = replace(one, name=f"{spec.name}-{group.name}", serves=spec.name)
        found.append(with_role(one, group.role, told.prefill))
    return found


def _model(spec: ModelSpec, there: _There, given: Machine | None) -> Model:
    engine = with_simulated(_engine(spec, there.hardware, given), spec, there.tenants)
    replicas, scaling = spec.replicas, None
    if isinstance(spec.engine, UrlEngine):
        count = len(spec.engine.urls)
    else:
        count = replicas.min
        if replicas.most > replicas.min:
            scaling = _scaling(spec)
    on = None if spec.on is None else there.hardware[spec.on]
    return Model(
        spec.name,
        engine,
        count,
        scaling,
        _start_s(spec),
        spec.routing.policy,
        spec.routing.wait,
        replicas.slots or engine.max_seqs,
        spec.price.price,
        _usd_per_hour(spec, there.hardware),
        place=place_of(on, _devices(spec), there.regions),
    )


def _devices(spec: ModelSpec) -> int:
    """Of one replica."""
    return spec.engine.tensor_parallel if isinstance(spec.engine, ServerEngine) else 1


def _scaling(spec: ModelSpec) -> Scaling:
    scale = spec.replicas.scale
    floors = [Floor(one.at, one.min) for one in scale.cron]

    def floor(now_s: float) -> int:
        return floor_at(floors, scale.timezone, BEGINS_UNIX_S + now_s) if floors else 0

    starts_s = sum(_start_s(spec).values())
    rule = RULES[(spec.simulated or Simulated()).scaling]
    return Scaling(settings_of(spec.replicas, target_for(spec), starts_s), floor=floor, rule=rule)


def _engine(spec: ModelSpec, hardware: Mapping[str, HardwareSpec], given: Machine | None) -> Engine:
    engine = spec.engine
    if isinstance(engine, FakeEngine):
        return Engine(given or _fake_machine(spec, engine), max_seqs=engine.max_seqs)
    on = given or _machine(spec, hardware)
    if isinstance(engine, RidgelineEngine):
        return Engine(
            on if given is not None else _with_cache(on, engine, spec.name),
            engine.max_seqs,
            engine.max_batched_tokens,
            prefix_caching=engine.prefix_caching,
            max_model_len=engine.max_model_len,
            resumes=True,
        )
    if isinstance(engine, ServerEngine):
        told = _told(spec, engine)
        return Engine(
            on,
            engine.max_seqs,
            told["max_batched_tokens"],
            told["block_tokens"],
            prefix_caching=bool(told["prefix_caching"]),
            max_model_len=engine.max_model_len,
            ahead=bool(told["ahead"]),
        )
    return Engine(on, max_seqs=spec.replicas.slots or 256)


def _with_cache(on: Machine, engine: RidgelineEngine, name: str) -> Machine:
    """Our engine's cache is as large as it is told, and no larger than what is left."""
    if engine.threads:
        raise SpecError(
            "is not simulated on accelerators of the catalog",
            where=f"models {name}.engine.threads",
            remedy="leave it out, or measure: ridgeline calibrate --from-live, then --step-times",
        )
    told = int(engine.kv_cache / on.cache_bytes_per_token)
    if told < _BLOCK_TOKENS:
        raise SpecError(
            f"holds {told} tokens, less than a block",
            where=f"models {name}.engine.kv_cache",
            remedy="a larger one",
        )
    return replace(on, kv_tokens=min(on.kv_tokens, told))


def _fake_machine(spec: ModelSpec, engine: FakeEngine) -> Machine:
    if engine.faults:
        raise SpecError(
            "faults of fake replicas are of live ones, and not simulated",
            where=f"models {spec.name}.engine.faults",
            remedy="leave them out, and say --fault of simulate",
        )
    if engine.accelerator and spec.model:
        return machine(spec.model, engine.accelerator)
    steps = Plain(engine.step, engine.step_per_seq, engine.prefill_tokens_per_s)
    return Machine(steps, engine.kv_tokens)


def _machine(spec: ModelSpec, hardware: Mapping[str, HardwareSpec]) -> Machine:
    """The step-time model of a model on the hardware that it is `on`."""
    where = f"models {spec.name}"
    if spec.on is None or spec.model is None:
        raise SpecError(
            "says no hardware to take step times of",
            where=f"{where}.on",
            remedy="`on: NAME` of one of `hardware`, or --step-times of simulate",
        )
    engine = spec.engine
    parallel, dtype, kind = 1, "bf16", "*"
    kv_dtype, memory_share = "bf16", MEMORY_SHARE
    if isinstance(engine, RidgelineEngine):
        dtype = engine.dtype
        kv_dtype = _DTYPES.get(engine.kv_cache_dtype, engine.kv_cache_dtype)
    elif isinstance(engine, ServerEngine):
        parallel, dtype, kind = engine.tensor_parallel, engine.dtype, engine.kind
        kv_dtype = _DTYPES.get(engine.kv_dtype, engine.kv_dtype)
        memory_share = engine.memory_share or memory_share
    accelerator = hardware[spec.on].accelerator
    try:
        return machine(
            spec.model,
            accelerator,
            tensor_parallel=parallel,
            dtype=_DTYPES.get(dtype, dtype),
            engine=kind,
            kv_dtype=kv_dtype,
            memory_share=memory_share,
        )
    except RidgelineError as error:
        if error.where:
            raise
        raise SpecError(error.problem, where=where, remedy=error.remedy) from error


def _told(spec: ModelSpec, engine: ServerEngine) -> dict[str, int]:
    """What the engine's own arguments set; SpecError for one that the simulator does not know."""
    told = {
        "max_batched_tokens": _VLLM_BATCHED_TOKENS,
        "block_tokens": _BLOCK_TOKENS,
        "prefix_caching": 1,
        "ahead": int(isinstance(engine, VllmEngine)),  # its default since 0.14
    }
    words = [word for one in engine.args for word in one.split("=", 1)]
    where = f"models {spec.name}.engine.args"
    while words:
        word = words.pop(0)
        if told.get(_OFF.get(word, "")):
            told[_OFF[word]] = 0
        elif word in _ARGS and words and words[0].isdecimal() and int(words[0]) > 0:
            told[_ARGS[word]] = int(words.pop(0))
        else:
            known = ", ".join([*_ARGS, *_OFF])
            raise SpecError(f"{word!r} is not simulated", where=where, remedy=f"one of: {known}")
    return told


def _start_s(spec: ModelSpec) -> dict[str, float]:
    engine = spec.engine
    if isinstance(engine, FakeEngine):
        return {"starting": engine.starting, "loading": engine.loading}
    if spec.replicas.start is not None:
        return {"start": spec.replicas.start}
    if not isinstance(engine, UrlEngine) and spec.replicas.most > spec.replicas.min:
        raise SpecError(
            "is missing: how long a start takes decides what scaling does",
            where=f"models {spec.name}.replicas.start",
            remedy="start: 90s, as measured or as `ridgeline plan cold-start` says",
        )
    return {}


def _usd_per_hour(spec: ModelSpec, hardware: Mapping[str, HardwareSpec]) -> Decimal:
    """What a replica costs: as said, else its accelerators."""
    if spec.replicas.usd_per_hour or spec.on is None:
        return spec.replicas.usd_per_hour
    return _devices(spec) * hardware[spec.on].usd_per_gpu_hour


def _tenant(spec: TenantSpec, regions: Sequence[RegionSpec]) -> Tenant:
    return Tenant(
        spec.name,
        spec.priority_class,
        spec.weight,
        spec.all_limits.limits,
        home_of(spec.name, regions),
        residency_of(spec.name, regions),
    )
