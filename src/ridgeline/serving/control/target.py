"""How a model is scaled, from its spec: what one replica serves well, and the policy's settings.

Requests at once for a replica are as told, by its step times, or by its slots.
"""

from typing import NamedTuple

from ridgeline.serving.plan.step_rates import step_time_of
from ridgeline.serving.policy.scale import Settings, Step
from ridgeline.serving.spec import ModelSpec, Replicas, Scale, UrlEngine

#: Of a replica's slots, those that it should have in use where nothing better is known.
_FILLED = 0.8
#: Tokens of a request's prompt and answer together, for the step-time model.
CONTEXT_TOKENS = 2048.0


class Target(NamedTuple):
    """Requests at once for one replica, and where that comes from."""

    per_replica: float
    source: str


def target_of(scale: Scale, slots: int) -> Target:
    """What a model's spec means. SpecError where its step times are none of the catalog's."""
    if scale.target_per_replica != "auto":
        return Target(scale.target_per_replica, "the spec's own")
    if scale.tpot is None or scale.step_times is None:
        return Target(max(1.0, _FILLED * slots), f"{_FILLED:.0%} of {slots} slots")
    step, source = step_time_of(scale.step_times)
    batch = 1
    while batch < slots and step.decode_s(batch + 1, (batch + 1) * CONTEXT_TOKENS) <= scale.tpot:
        batch += 1
    most = f", of {slots} slots" if batch == slots else ""
    return Target(float(batch), f"decoded within {scale.tpot * 1e3:g} ms by {source}{most}")


def target_for(model: ModelSpec) -> Target:
    """How many requests at once one of its replicas serves well. SpecError by `target_of`."""
    assert not isinstance(model.engine, UrlEngine), "servers that run already are not scaled"
    slots = model.replicas.slots or model.engine.max_seqs
    return target_of(model.replicas.scale, slots)


def settings_of(replicas: Replicas, target: Target, start_s: float = 0.0) -> Settings:
    """What the policy is told of a model's spec; a start takes `start_s`."""
    scale = replicas.scale
    return Settings(
        least=replicas.min,
        most=replicas.most,
        per_replica=target.per_replica,
        up=Step(scale.up.by, scale.up.every),
        down_after_s=scale.down.stabilise,
        zero_after_s=scale.zero_after,
        spare=None if scale.spare == "auto" else scale.spare,
        start_s=start_s,
    )
