"""How many replicas a model needs, from what was seen of it lately. Pure.

    demand   = running + waiting at replicas + queued and held at the gateway
    enough   = ceil(demand / what one replica serves well)
    up       at once, at most `up.by` replicas in any `up.every_s`
    down     to the most that was enough at any time of the last `down_after_s`
    to zero  only after `zero_after_s` without any demand, all of it seen

A replica that starts counts as capacity from the moment it is asked for, so nobody asks for it
twice. What is not known is not zero: without a look at the replicas nothing goes down, and only
what queues here may ask for more. The same function runs in the simulator.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one instant (nanoseconds).

    `running` and `waiting` are of all replicas; None where one that should say does not. `queued`
    is what waits before them, for whatever reason. `replicas` are those that serve or start;
    draining ones do not count.
    """

    at_ns: int
    running: int | None
    waiting: int | None
    queued: int
    replicas: int
    ready: int

    @property
    def demand(self) -> int | None:
        """Requests that are there; None where that is not known."""
        if self.running is None or self.waiting is None:
            return None
        return self.running + self.waiting + self.queued


@dataclass(frozen=True, slots=True)
class Step:
    """The most that a number of replicas may grow by in a time."""

    by: int = 2
    every_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What a model's operator wants.

    `per_replica` is how many requests at once one replica serves well. Within `tolerance` of what
    there is nothing changes. `spare` replicas are kept beyond what is enough; None: as many as
    came to be needed lately in the time that a start takes, `start_s` (Little's law).
    """

    least: int = 1
    most: int = 1
    per_replica: float = 1.0
    up: Step = Step()
    down_after_s: float = 300.0
    zero_after_s: float = 300.0
    tolerance: float = 0.1
    spare: int | None = 0
    start_s: float = 0.0

    @property
    def memory_s(self) -> float:
        """How much of the past matters."""
        return max(self.up.every_s, self.down_after_s, self.zero_after_s)


@dataclass(frozen=True, slots=True)
class Scaled:
    """How many there should be, what decided, and the demand it comes from (None: not known)."""

    replicas: int
    reason: str
    demand: int | None = None


def scale(looks: Sequence[Look], settings: Settings, *, floor: int = 0) -> Scaled:
    """How many replicas there should be after the last look; `looks` is oldest first.

    `floor` is what a schedule wants now. The answer is within `least` and `most` whatever happens.
    """
    least = min(max(settings.least, floor), settings.most)
    wanted = _wanted(looks, _with_spare(looks, settings))
    bounded = min(max(wanted.replicas, least), settings.most)
    if bounded == wanted.replicas:
        return wanted
    if bounded == settings.most:
        limit = f"{settings.most} are the most"
    elif least > settings.least:
        limit = f"the schedule wants {least}"
    else:
        limit = f"{least} are the least"
    return Scaled(bounded, f"{bounded}: {limit} ({wanted.reason})", wanted.demand)


def _wanted(looks: Sequence[Look], settings: Settings) -> Scaled:
    now = looks[-1]
    have, demand = now.replicas, now.demand
    if demand is None:
        return _blind(looks, settings)
    enough = _enough(demand, settings)
    said = f"{demand} requests, {settings.per_replica:g} a replica"
    if demand and settings.spare:
        said += f", {settings.spare} to spare"
    if enough > have:
        serving = have - (settings.spare or 0)
        if serving > 0 and demand <= serving * settings.per_replica * (1 + settings.tolerance):
            return Scaled(have, f"{have} are enough: {said}, within the tolerance", demand)
        return _up(looks, settings, enough, said, demand)
    if enough < have:
        return _down(looks, settings, enough, said, demand)
    return Scaled(have, f"{have} are enough: {said}", demand)


def _blind(looks: Sequence[Look], settings: Settings) -> Scaled:
    """Replicas do not say what they do: those that queue here are known to be there."""
    now = looks[-1]
    enough = ceil(now.queued / settings.per_replica) if now.queued else 0
    if enough > now.replicas:
        return _up(looks, settings, enough, f"{now.queued} queue here, replicas are silent", None)
    return Scaled(now.replicas, f"hold {now.replicas}: replicas do not say what they do")


def _enough(demand: int, settings: Settings) -> int:
    """What serves the demand well, and the spare ones on top where there is any."""
    return ceil(demand / settings.per_replica) + (settings.spare or 0) if demand else 0


def _with_spare(looks: Sequence[Look], settings: Settings) -> Settings:
    """The settings with a number of spare replicas: what could come while one starts.

    That is the fastest growth lately of what is enough, over the time of a start, times that time;
    and no more than serve, for a backlog grows faster than what arrives.
    """
    if settings.spare is not None:
        return settings
    since_ns = looks[-1].at_ns - round(settings.memory_s * _NS)
    start_ns = round(settings.start_s * _NS)
    most, need, lowest = 0, 0, deque[tuple[int, int]]()  # needs of one start's time, ever higher
    for look in looks:
        if look.demand is None or look.at_ns < since_ns:
            continue
        need = ceil(look.demand / settings.per_replica)
        while lowest and lowest[-1][1] >= need:
            lowest.pop()
        lowest.append((look.at_ns, need))
        while lowest[0][0] < look.at_ns - start_ns:
            lowest.popleft()
        most = max(most, need - lowest[0][1])
    starts_per_s = most / settings.start_s if settings.start_s else 0.0
    return replace(settings, spare=min(warm_pool(starts_per_s, settings.start_s), need))


def _up(
    looks: Sequence[Look], settings: Settings, enough: int, said: str, demand: int | None
) -> Scaled:
    now, step = looks[-1], settings.up
    since_ns = now.at_ns - round(step.every_s * _NS)
    before = [look.replicas for look in looks if look.at_ns > since_ns]
    most = min(before) + step.by
    if most < enough:
        allowed = max(most, now.replicas)
        kept = f"at most {step.by} in {step.every_s:g} s"
        if allowed == now.replicas:
            return Scaled(allowed, f"hold {allowed}: {enough} wanted for {said}; {kept}", demand)
        return Scaled(allowed, f"up to {allowed} of {enough}: {said}; {kept}", demand)
    return Scaled(enough, f"up to {enough}: {said}", demand)


def _down(looks: Sequence[Look], settings: Settings, enough: int, said: str, demand: int) -> Scaled:
    now = looks[-1]
    have = now.replicas
    window = _window(looks, settings.down_after_s)
    if window is None:
        return Scaled(have, f"hold {have}: {enough} would do; not enough was seen yet", demand)
    needed = max(_enough(look, settings) for look in window)
    if needed >= have:
        over = f"{settings.down_after_s:g} s"
        return Scaled(have, f"hold {have}: {enough} would do, {needed} did not in {over}", demand)
    if needed == 0:
        idle = _window(looks, settings.zero_after_s)
        if idle is None or any(idle):
            kept = f"none only after {settings.zero_after_s:g} s of quiet"
            return Scaled(1, f"{'hold' if have == 1 else 'down to'} 1: {kept}", demand)
        return Scaled(0, f"down to 0: nothing for {settings.zero_after_s:g} s", demand)
    return Scaled(needed, f"down to {needed}: {said}", demand)


def _window(looks: Sequence[Look], lasts_s: float) -> list[int] | None:
    """The demands of a time until now; None where it was not seen whole.

    One look before its beginning shows that watching had begun by then.
    """
    since_ns = looks[-1].at_ns - round(lasts_s * _NS)
    if looks[0].at_ns > since_ns:
        return None
    demands = [look.demand for look in looks if look.at_ns >= since_ns]
    known = [demand for demand in demands if demand is not None]
    return known if len(known) == len(demands) else None


def remembered(
    looks: Iterable[Look], settings: Settings, now_ns: int, memory_s: float = 0.0
) -> list[Look]:
    """The looks that a later decision may still ask for: the window, and one before it.

    Another rule than ours may look back further, by `memory_s`.
    """
    since_ns = now_ns - round(max(settings.memory_s, memory_s) * _NS)
    kept = list(looks)
    begins = next((at for at, look in enumerate(kept) if look.at_ns >= since_ns), len(kept))
    return kept[max(begins - 1, 0) :]


# What other autoscalers compute, to compare with, and for whoever wants theirs.


def average_value(metric: float, target: float, least: int, most: int) -> int:
    """Kubernetes' HPA with a target of type AverageValue, and KEDA's: ceil(sum / target)."""
    return min(max(ceil(metric / target), least), most)


def utilisation(
    replicas: int, metric: float, target: float, least: int, most: int, tolerance: float = 0.1
) -> int:
    """Kubernetes' HPA with a target of type Utilization or Value: ceil(now x metric / target).

    Nothing changes within the tolerance.
    """
    ratio = metric / target
    wanted = replicas if abs(ratio - 1) <= tolerance else ceil(replicas * ratio)
    return min(max(wanted, least), most)


def warm_pool(starts_per_s: float, start_s: float) -> int:
    """Replicas to hold ready for demand that comes while one starts: Little's law, rounded up."""
    return ceil(round(starts_per_s * start_s, 9))
