"""Make a reference from a deployment, or compare one with it.

Called by `ridgeline evaluate`, and before a canary by `control.likeness`.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any

from ridgeline.errors import SpecError
from ridgeline.serving.evaluate.cases import LONG_ANSWER_TOKENS, RUNGS, Case, long_case, packaged
from ridgeline.serving.evaluate.endpoint import Endpoint, connect
from ridgeline.serving.evaluate.reference import Reference
from ridgeline.serving.policy.answers import Answer, Category, Pair
from ridgeline.serving.policy.config_faults import CRITERIA, Criteria
from ridgeline.serving.policy.draws import diverging
from ridgeline.serving.policy.likeness import Likeness, compare

#: Prompts at once: a deployment that serves others should hardly notice.
AT_ONCE = 4
#: How long the longest prompt is where the server does not say what it takes.
LONGEST_TOKENS = 8192
#: Lines of two prompts by which tokens per line are measured.
_PROBES = (7, 21)


async def make_reference(
    url: str, model: str, *, api_key: str | None = None, longest: int = LONGEST_TOKENS
) -> Reference:
    """What the deployment answers now. `longest` bounds the long prompts, in tokens.

    Prompts that it refuses are left out: it cannot be held to them later. Raises SpecError.
    """
    async with connect(api_key) as session:
        endpoint = Endpoint(session, url, model)
        told = await endpoint.longest()
        bound = longest if told is None else min(longest, told)
        cases = [*packaged(), *await _long_cases(endpoint, bound)]
        answers = await _each([endpoint.ask(case) for case in cases])
        kept = [
            (case, answer)
            for case, answer in zip(cases, answers, strict=True)
            if not answer.refused
        ]
        if not any(answer.steps for _, answer in kept):
            first = next((answer.refused for answer in answers if answer.refused), "no tokens")
            raise SpecError(f"{url} answered no prompt: {first}", where="--url")
        drawn = [one for one in kept if one[0].category is Category.DEFAULTS]
        again = await _each([endpoint.ask(case) for case, _ in drawn])
    pairs = [
        Pair(case.category, case.name, before, now, case.is_raw)
        for (case, before), now in zip(drawn, again, strict=True)
    ]
    return Reference(
        model,
        datetime.now(UTC).isoformat(timespec="seconds"),
        tuple(case for case, _ in kept),
        tuple(answer for _, answer in kept),
        repeats=not diverging(pairs),
        longest=told,
    )


async def evaluate(
    reference: Reference,
    url: str,
    model: str,
    *,
    api_key: str | None = None,
    criteria: Criteria = CRITERIA,
) -> Likeness:
    """How the deployment's answers compare with the reference. Raises SpecError."""
    async with connect(api_key) as session:
        pairs = await ask_again(reference, Endpoint(session, url, model))
    return compare(pairs, criteria, repeats=reference.repeats)


async def ask_again(reference: Reference, endpoint: Endpoint) -> list[Pair]:
    """Each prompt of the reference with what the deployment answers now."""
    known = list(zip(reference.cases, reference.answers, strict=True))
    seen = await _each(
        [
            endpoint.ask(case)
            if case.category is Category.DEFAULTS  # what is drawn is not led
            else endpoint.follow(case, before)
            for case, before in known
        ]
    )
    return [
        Pair(case.category, case.name, before, now, case.is_raw)
        for (case, before), now in zip(known, seen, strict=True)
    ]


async def _long_cases(endpoint: Endpoint, bound: int) -> list[Case]:
    """Prompts that fill shares of the longest sequence, by how many tokens a line was counted."""
    counts = [(await endpoint.ask(long_case("probe", lines))).prompt_tokens for lines in _PROBES]
    few, many = counts
    if few is None or many is None or many <= few:
        return []
    line_tokens = (many - few) / (_PROBES[1] - _PROBES[0])
    frame_tokens = few - _PROBES[0] * line_tokens
    found = []
    for rung in RUNGS:
        # A line may have a token more than the mean.
        room = rung * (bound - LONG_ANSWER_TOKENS) * 0.99 - frame_tokens
        if (lines := int(room / line_tokens)) > 0:
            found.append(long_case(f"{rung:.0%}", lines))
    return found


async def _each(asked: Sequence[Coroutine[Any, Any, Answer]]) -> list[Answer]:
    """All answers in order, a few at once; the first that fails ends all."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(answer: Coroutine[Any, Any, Answer]) -> Answer:
        async with turns:
            return await answer

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(answer)) for answer in asked]
    except ExceptionGroup as caught:
        raise caught.exceptions[0] from caught
    finally:
        for answer in asked:
            answer.close()
    return [task.result() for task in tasks]
