"""How people name a version: its id, the beginning of it, or a name that leads to it.

`sha256:9f86d081884c7d65…` is an id; 8 digits of it are enough where no other begins so, with
`sha256:` or without. `chat`, `chat:v2` and `org/chat` are names, each leads to one version at
a time; `store:chat` is the same name, as a spec says it.
"""

import re
from dataclasses import dataclass

from ridgeline.errors import ModelError
from ridgeline.serving.models.manifest import PREFIX

NAMED = "store:"
LEAST_DIGITS = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,150}(:[A-Za-z0-9][A-Za-z0-9._-]{0,50})?")
_DIGITS = re.compile(rf"[0-9a-f]{{{LEAST_DIGITS},64}}")
_KINDS = (PREFIX.rstrip(":"), NAMED.rstrip(":"))


@dataclass(frozen=True, slots=True)
class Reference:
    """`digits` of an id, or a `name`: one of them."""

    digits: str = ""
    name: str = ""


def is_reference(named: str) -> bool:
    """Whether a spec's `model` means the store, and no packaged model, file or folder."""
    return named.startswith((PREFIX, NAMED))


def parse(text: str) -> Reference:
    """What a text names; ModelError where it can name nothing."""
    digits = text.removeprefix(PREFIX)
    if text.startswith(PREFIX) or _DIGITS.fullmatch(digits):
        if _DIGITS.fullmatch(digits) is None:
            problem = f"{text!r} is no id: {LEAST_DIGITS} to 64 digits of 0-9 and a-f are"
            raise ModelError(problem, where="model", remedy="ridgeline models list")
        return Reference(digits=digits)
    name = text.removeprefix(NAMED)
    check_name(name)
    return Reference(name=name)


def check_name(name: str) -> None:
    """ModelError where a name would not do, or could be taken for an id."""
    is_good = _NAME.fullmatch(name) and name.partition(":")[0] not in _KINDS
    if not is_good or _DIGITS.fullmatch(name):
        raise ModelError(
            f"{name!r} is no name for a version",
            where="name",
            remedy="letters, digits and . _ / -, with :TAG or without, e.g. chat:v2",
        )
