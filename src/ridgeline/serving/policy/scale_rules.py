"""How other autoscalers decide, to see in a simulation what they would do. Pure.

Each takes the looks that `policy.scale` takes. Of their settings, the target of one replica and the
bounds are the spec's; windows, delays and rates are each one's own defaults:

    kpa    Knative's: mean concurrency of 60 s, of 6 s in a panic, in which nothing shrinks
    ray    Ray Serve's: mean of 30 s, up after 30 s of wishing so, down after 600 s
    hpa    Kubernetes': a ratio with 10 % tolerance every 15 s, down after 300 s; never to zero
    keda   a queue's length over a threshold, to zero after 300 s; what is missing counts as 0

Where one of them knows less than `scale` does it is told less: Kubernetes reads what replicas say
of themselves, KEDA a queue's length, and neither sees who waits before any replica.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from statistics import fmean

from ridgeline.serving.policy.scale import Look, Scaled, Settings, scale

_NS = 1_000_000_000

Decide = Callable[[Sequence[Look], Settings, int], Scaled]


@dataclass(frozen=True, slots=True)
class Rule:
    """A formula, and how much of the past it looks at besides what the settings say."""

    name: str
    decide: Decide
    memory_s: float = 0.0


def _ours(looks: Sequence[Look], settings: Settings, least: int) -> Scaled:
    return scale(looks, settings, floor=least)


# Knative Pod Autoscaler. Source: Knative Serving 1.15, docs on autoscaling (stable-window 60 s,
# panic-window-percentage 10, panic-threshold-percentage 200, max-scale-up-rate 1000,
# max-scale-down-rate 2, scale-to-zero-grace-period 30 s) and pkg/autoscaler/scaling.
_STABLE_S, _PANIC_S, _GRACE_S = 60.0, 6.0, 30.0
_PANIC_AT, _UP_RATE, _DOWN_RATE = 2.0, 1000.0, 2.0


def kpa(looks: Sequence[Look], settings: Settings, least: int) -> Scaled:
    """Knative's: the stable mean, or in a panic the short one, which never shrinks."""
    now = looks[-1]
    last = len(looks) - 1
    stable, short = (_mean(looks, last, one) for one in (_STABLE_S, _PANIC_S))
    if stable is None or short is None:
        return _bounded(now.replicas, "hold: nothing is known", settings, least)
    ready = max(1, now.ready)
    most, fewest = ceil(_UP_RATE * ready), floor(ready / _DOWN_RATE)
    wanted = min(max(ceil(stable / settings.per_replica), fewest), most)
    if _panics(looks, settings):
        urgent = min(max(ceil(short / settings.per_replica), fewest), most)
        kept = max(urgent, now.replicas)
        return _bounded(kept, f"panic: {short:.1f} in the last {_PANIC_S:g} s", settings, least)
    if wanted == 0 or stable == 0:
        quiet_s = _STABLE_S + _GRACE_S
        if _mean(looks, last, quiet_s) or not _covers(looks, quiet_s):
            said = f"none only after {quiet_s:g} s of quiet"
            return _bounded(min(1, now.replicas), said, settings, least)
        return _bounded(0, "nothing in the window", settings, least)
    return _bounded(wanted, f"{stable:.1f} on average in {_STABLE_S:g} s", settings, least)


def _panics(looks: Sequence[Look], settings: Settings) -> bool:
    """Whether the short mean called for twice what was ready, at any time of a stable window."""
    since_ns = looks[-1].at_ns - round(_STABLE_S * _NS)
    for place, look in enumerate(looks):
        if look.at_ns < since_ns:
            continue
        short = _mean(looks, place, _PANIC_S)
        if short:
            wanted = ceil(short / settings.per_replica)
            if wanted / max(1, look.ready) >= _PANIC_AT:
                return True
    return False


# Ray Serve. Source: Ray 2.40, docs on autoscaling (look_back_period_s 30, upscale_delay_s 30,
# downscale_delay_s 600, smoothing factors 1) and serve/autoscaling_policy.py.
_LOOK_BACK_S, _UP_DELAY_S, _DOWN_DELAY_S = 30.0, 30.0, 600.0


def ray(looks: Sequence[Look], settings: Settings, least: int) -> Scaled:
    """Ray Serve's: what it wished for all of a delay; from none to one at once."""
    now = looks[-1]
    wanted = _wish(looks, len(looks) - 1, settings)
    if wanted is None:
        return _bounded(now.replicas, "hold: nothing is known", settings, least)
    if now.replicas == 0:
        first = 1 if (now.queued or wanted) else 0
        return _bounded(first, f"{now.queued} wait and none is there", settings, least)
    for delay_s, differs in ((_UP_DELAY_S, _more), (_DOWN_DELAY_S, _fewer)):
        if differs(wanted, now.replicas):
            if _wished(looks, settings, delay_s, differs):
                return _bounded(wanted, f"{wanted} wished for {delay_s:g} s", settings, least)
            said = f"hold: {wanted} wished, and not yet for {delay_s:g} s"
            return _bounded(now.replicas, said, settings, least)
    return _bounded(now.replicas, f"{wanted} are enough", settings, least)


def _more(wanted: int, there: int) -> bool:
    return wanted > there


def _fewer(wanted: int, there: int) -> bool:
    return wanted < there


def _wish(looks: Sequence[Look], place: int, settings: Settings) -> int | None:
    """Of the mean of the look-back period: ceil(replicas x total / (replicas x target))."""
    total = _mean(looks, place, _LOOK_BACK_S)
    return None if total is None else ceil(total / settings.per_replica)


def _wished(
    looks: Sequence[Look], settings: Settings, delay_s: float, differs: Callable[[int, int], bool]
) -> bool:
    """Whether it was wished at each look of the delay, with as many replicas all the time."""
    now = looks[-1]
    since_ns = now.at_ns - round(delay_s * _NS)
    if looks[0].at_ns > since_ns:
        return False
    for place in range(len(looks) - 1, -1, -1):
        look = looks[place]
        if look.at_ns < since_ns:
            break
        wanted = _wish(looks, place, settings)
        same = look.replicas == now.replicas
        if wanted is None or not same or not differs(wanted, look.replicas):
            return False
    return True


# Horizontal Pod Autoscaler. Source: Kubernetes 1.31, docs on horizontal pod autoscaling: every
# 15 s, tolerance 0.1, scale-down stabilisation 300 s, up by at most max(4 pods, 100 %) in 15 s.
_SYNC_S, _TOLERANCE, _STABILISE_S = 15.0, 0.1, 300.0
_UP_PODS, _UP_SHARE = 4, 1.0


def hpa(looks: Sequence[Look], settings: Settings, least: int) -> Scaled:
    """Kubernetes', with a target of type AverageValue of what replicas say that they have."""
    now = looks[-1]
    if not _is_sync(looks, _SYNC_S):
        return _bounded(now.replicas, "between two syncs", settings, max(1, least))
    wanted = _ratio(now, settings)
    if wanted is None:
        return _bounded(now.replicas, "hold: a metric is missing", settings, max(1, least))
    return _paced(looks, settings, wanted, lambda look: _ratio(look, settings), max(1, least))


def _ratio(look: Look, settings: Settings) -> int | None:
    """Pods that are not ready count as idle where more are wanted, and not where fewer are."""
    if look.running is None or look.waiting is None:
        return None
    total, there = look.running + look.waiting, max(1, look.replicas)
    ready = max(1, look.ready)
    ratio = total / (ready * settings.per_replica)
    if ratio > 1 and ready < there:
        ratio = max(1.0, total / (there * settings.per_replica))
        ready = there
    if abs(ratio - 1) <= _TOLERANCE:
        return there
    return ceil(round(ratio * ready, 9))


# KEDA. Source: KEDA 2.15, docs on ScaledObject (pollingInterval 30 s, cooldownPeriod 300 s) and on
# its Prometheus scaler (a series that is missing is 0 unless ignoreNullValues is false); above zero
# the HPA that it makes decides.
_THRESHOLD, _POLL_S, _COOLDOWN_S = 5, 30.0, 300.0


def keda(looks: Sequence[Look], settings: Settings, least: int) -> Scaled:
    """KEDA's, on how many wait at replicas, five of which are one replica's."""
    now = looks[-1]
    if not _is_sync(looks, _POLL_S):
        return _bounded(now.replicas, "between two polls", settings, least)
    if now.replicas == 0:
        active = 1 if _waiting(now) + now.queued else 0
        return _bounded(active, f"{now.queued} wait and none is there", settings, least)
    wanted = _for_queue(now)
    if not wanted and _covers(looks, _COOLDOWN_S):
        since_ns = now.at_ns - round(_COOLDOWN_S * _NS)
        if not any(_waiting(look) for look in looks if look.at_ns >= since_ns):
            return _bounded(0, f"nobody waited for {_COOLDOWN_S:g} s", settings, least)
    return _paced(looks, settings, max(1, wanted), lambda look: max(1, _for_queue(look)), least)


def _waiting(look: Look) -> int:
    return look.waiting or 0


def _for_queue(look: Look) -> int:
    return ceil(_waiting(look) / _THRESHOLD)


def _paced(
    looks: Sequence[Look],
    settings: Settings,
    wanted: int,
    recommended: Callable[[Look], int | None],
    least: int,
) -> Scaled:
    """Kubernetes' behaviour policies: how fast up; down only to the most of the last minutes."""
    now = looks[-1]
    if wanted > now.replicas:
        since_ns = now.at_ns - round(_SYNC_S * _NS)
        before = min(look.replicas for look in looks if look.at_ns > since_ns)
        most = before + max(_UP_PODS, ceil(before * _UP_SHARE))
        allowed = max(now.replicas, min(wanted, most))
        return _bounded(allowed, f"{wanted} recommended, at most {most} now", settings, least)
    since_ns = now.at_ns - round(_STABILISE_S * _NS)
    window = [recommended(look) for look in looks if look.at_ns >= since_ns]
    highest = max((one for one in window if one is not None), default=now.replicas)
    kept = min(now.replicas, max(wanted, highest))
    return _bounded(kept, f"{wanted} recommended, {highest} in {_STABILISE_S:g} s", settings, least)


def _is_sync(looks: Sequence[Look], every_s: float) -> bool:
    """Whether a multiple of the period has come since the last look."""
    every_ns = round(every_s * _NS)
    before_ns = looks[-2].at_ns if len(looks) > 1 else -1
    return looks[-1].at_ns // every_ns != before_ns // every_ns


def _mean(looks: Sequence[Look], place: int, lasts_s: float) -> float | None:
    """The mean demand of a time up to the look at this place; None where none is known."""
    since_ns = looks[place].at_ns - round(lasts_s * _NS)
    known = []
    for at in range(place, -1, -1):
        if looks[at].at_ns <= since_ns:
            break
        demand = looks[at].demand
        if demand is not None:
            known.append(demand)
    return fmean(known) if known else None


def _covers(looks: Sequence[Look], lasts_s: float) -> bool:
    return looks[0].at_ns <= looks[-1].at_ns - round(lasts_s * _NS)


def _bounded(wanted: int, reason: str, settings: Settings, least: int) -> Scaled:
    lowest = min(max(settings.least, least), settings.most)
    replicas = min(max(wanted, lowest), settings.most)
    return Scaled(replicas, f"{replicas}: {reason}")


OURS = Rule("ridgeline", _ours)
RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        OURS,
        Rule("kpa", kpa, 2 * _STABLE_S + _GRACE_S),
        Rule("ray", ray, _DOWN_DELAY_S + _LOOK_BACK_S + 10.0),
        Rule("hpa", hpa, _STABILISE_S + 2 * _SYNC_S),
        Rule("keda", keda, _STABILISE_S + 2 * _POLL_S),
    )
}
