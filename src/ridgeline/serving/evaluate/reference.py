"""A reference as a file: the prompts, whole, and what a deployment known to be good answered.

It holds all that is needed to ask again, so that prompts of a later release change no old one.
Stored under the state folder by a version's id where rollouts look for it.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgeline.errors import SpecError
from ridgeline.paths import state_home
from ridgeline.serving.evaluate.cases import Case
from ridgeline.serving.policy.answers import Answer, Category, Step

FORM = 1


@dataclass(frozen=True, slots=True)
class Reference:
    """`cases` with their `answers`, in the same order.

    `repeats`: the same seed gave the same answer twice. `longest` is the longest sequence that
    the server took, None where it does not tell.
    """

    model: str
    made: str
    cases: tuple[Case, ...]
    answers: tuple[Answer, ...]
    repeats: bool = True
    longest: int | None = None


def stored(version_id: str) -> Path:
    """Where the reference of a version is."""
    return state_home() / "references" / f"{version_id}.json"


def write(reference: Reference, path: Path) -> None:
    """Whole or not at all."""
    told = {
        "ridgeline_reference": FORM,
        "model": reference.model,
        "made": reference.made,
        "longest": reference.longest,
        "repeats": reference.repeats,
        "cases": [
            {
                "category": case.category.value,
                "name": case.name,
                "path": case.path,
                "body": case.body,
                "answer": _told(answer),
            }
            for case, answer in zip(reference.cases, reference.answers, strict=True)
        ],
    }
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(told, ensure_ascii=False) + "\n", encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise SpecError(f"cannot be written: {error.strerror}", where=str(path)) from error


def read(path: Path) -> Reference:
    """One that was written. Raises SpecError."""
    remedy = "ridgeline evaluate MODEL --url URL --save FILE, of a deployment that is good"
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["ridgeline_reference"] != FORM:
            problem = f"is of form {told['ridgeline_reference']}, and this release reads {FORM}"
            raise SpecError(problem, where=str(path), remedy=remedy)
        return Reference(
            told["model"],
            told["made"],
            tuple(_case(one) for one in told["cases"]),
            tuple(_answer(one["answer"]) for one in told["cases"]),
            told["repeats"],
            told["longest"],
        )
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise SpecError(problem, where=str(path), remedy=remedy) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpecError("is no reference", where=str(path), remedy=remedy) from error


def _case(told: Mapping[str, Any]) -> Case:
    return Case(Category(told["category"]), told["name"], told["path"], told["body"])


def _told(answer: Answer) -> dict[str, Any]:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "prompt_ids": answer.prompt_ids,
        "ids": answer.ids,
        "steps": [[step.token, step.logprob, step.top] for step in answer.steps],
    }


def _answer(told: Mapping[str, Any]) -> Answer:
    ids, prompt_ids = told["ids"], told["prompt_ids"]
    return Answer(
        tuple(Step(token, logprob, top) for token, logprob, top in told["steps"]),
        None if ids is None else tuple(ids),
        told["prompt_tokens"],
        None if prompt_ids is None else tuple(prompt_ids),
    )
