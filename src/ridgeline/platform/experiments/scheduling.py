"""Experiments on schedulers: stealing, sharing, gangs that block each other."""

import random
from collections import deque
from typing import Literal

from ridgeline.platform.experiments import experiment


@experiment("steals", cost=lambda workers, depth, **_: 2 ** min(depth, 40) * 8 + workers * 1000)
def steals(
    workers: int = 8, depth: int = 14, end: Literal["oldest", "newest"] = "oldest", seed: int = 1
) -> float:
    """How often idle workers steal while a binary tree of tasks is worked off.

    In each round every worker takes the newest task of its own deque and puts its two children
    there, or, with nothing to do, tries one random deque and takes a task from that end of it.
    """
    chance = random.Random(seed)
    deques: list[deque[int]] = [deque() for _ in range(workers)]
    deques[0].append(depth)
    leaves, stolen = 2**depth, 0
    while leaves:
        for own in deques:
            if own:
                level = own.pop()
                leaves -= level == 0
                own.extend([level - 1] * (2 if level else 0))
                continue
            victim = deques[chance.randrange(workers)]
            if victim:
                own.append(victim.popleft() if end == "oldest" else victim.pop())
                stolen += 1
    return float(stolen)


@experiment("dominant-share", cost=lambda cores, memory, **_: 10 * (cores + memory))
def dominant_share(
    cores: int = 9,
    memory: int = 18,
    first_cores: int = 1,
    first_memory: int = 4,
    second_cores: int = 3,
    second_memory: int = 1,
    shares: Literal["exact", "whole"] = "exact",
) -> tuple[float, float]:
    """Tasks that two users get where the next task goes to the smaller dominant share.

    `exact` compares shares by cross-multiplication and passes over a user whose next task does not
    fit. `whole` is the known bug: shares divided as integers, and a stop at the first misfit.
    """
    demands = ((first_cores, first_memory), (second_cores, second_memory))
    left, tasks = [cores, memory], [0, 0]
    waiting = [user for user in (0, 1) if max(demands[user])]

    def dominant(user: int) -> float:
        uses = zip(demands[user], (cores, memory), strict=True)
        used = [(tasks[user] * need, whole) for need, whole in uses if whole]
        if shares == "whole":
            return max((need // whole for need, whole in used), default=0)
        return max((need / whole for need, whole in used), default=0)

    while waiting:
        user = min(waiting, key=dominant)
        rest = [free - need for free, need in zip(left, demands[user], strict=True)]
        if min(rest) >= 0:
            left, tasks[user] = rest, tasks[user] + 1
        elif shares == "whole":
            break
        else:
            waiting.remove(user)
    return float(tasks[0]), float(tasks[1])


@experiment("gang-deadlock", cost=lambda jobs, pods, trials, **_: 2 * jobs * pods * trials)
def gang_deadlock(
    jobs: int = 2,
    pods: int = 64,
    places: int = 64,
    trials: int = 2000,
    admission: Literal["per-pod", "whole-job"] = "per-pod",
    seed: int = 0,
) -> float:
    """The share of random placement orders after which no job is whole and none can go on."""
    chance, stuck = random.Random(seed), 0
    for _ in range(trials):
        queue = [job for job in range(jobs) for _ in range(pods)]
        chance.shuffle(queue)
        if admission == "whole-job":
            admitted = list(dict.fromkeys(queue))[: places // pods]
            queue = [job for job in queue if job in admitted]
        placed = queue[:places]
        whole = any(placed.count(job) == pods for job in range(jobs))
        stuck += bool(placed) and not whole
    return stuck / trials
