"""Ridgeline's own records as a trace: yesterday's traffic, for tomorrow's policy.

Two files hold it. The gateway's log has a line for each request that ended, with its instant, its
tenant, session and model, the tokens that were used, and the hashes of its prompt's beginning. The
events of `ridgeline simulate serving --events` have a line for each request that was asked.

Who was refused, or had no answer for another reason of ours, wanted one all the same: his prompt is
what the gateway took it to have, and his answer as long as another's (`with_answers`). Who asked
for what nobody serves, or may not ask, is left out, and so are embeddings.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ridgeline.workload.numbers import name, seconds, tokens
from ridgeline.workload.request import Request
from ridgeline.workload.rows import Row

#: About what a hash in the log stands for: 512 bytes of the prompt's text.
BLOCK_TOKENS = 128
_DIGITS = 16
_WANTED = (408, 429, 499)
_ANSWERS_SEED = 6


class Events:
    """Reads the lines of one file."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def __call__(self, row: Row) -> tuple[Request, ...]:
        """The request that a line is of, if it is of one."""
        match row.get("event"):
            case "request":
                return (_ended(row),)
            case "asked":
                return self._simulated(row)
        return ()

    def _simulated(self, row: Row) -> tuple[Request, ...]:
        """A request that was refused is asked again under its number: it counts once."""
        who = name(row["who"])
        if who in self._asked:
            return ()
        self._asked.add(who)
        model, prompt, output, *rest = row["what"]
        tenant, session = (*(name(one) for one in rest[:2]), "", "")[:2]
        at_s = seconds(row["at_ns"]) / 1e9
        sizes = tokens(prompt), tokens(output)
        return (Request(at_s, *sizes, tenant=tenant, session=session, model=name(model)),)


def with_answers(requests: Sequence[Request]) -> tuple[list[Request], str]:
    """Answers for those without one, each as long as one of the same model; and what was done."""
    known: dict[str, list[int]] = {}
    for one in requests:
        if one.output_tokens:
            known.setdefault(one.model, []).append(one.output_tokens)
    rng = np.random.default_rng(_ANSWERS_SEED)
    whole, drawn = [], 0
    for one in requests:
        if one.prompt_tokens and not one.output_tokens and one.model in known:
            some = known[one.model]
            one = replace(one, output_tokens=some[int(rng.integers(len(some)))])
            drawn += 1
        whole.append(one)
    told = f"{drawn} were not answered: their prompts are estimates, their answers drawn of others'"
    return whole, told if drawn else ""


def _ended(row: Row) -> Request:
    used, output = tokens(row["input_tokens"]), tokens(row["output_tokens"])
    prompt = used if output else 0
    if not used and _was_wanted(row):
        prompt = tokens(row.get("expected_tokens", 0))
    return Request(
        seconds(row["at_unix_s"]),
        prompt,
        output,
        _blocks(row.get("prefix", "")),
        name(row.get("tenant")),
        name(row.get("session")),
        name(row.get("model")),
    )


def _was_wanted(row: Row) -> bool:
    """Whether an answer was wanted that nobody gave, or not the whole of it."""
    if "embeddings" in str(row.get("endpoint", "")):
        return False
    status = tokens(row.get("status", 200))
    return status < 400 or status in _WANTED or status >= 500


def _blocks(prefix: object) -> tuple[int, ...]:
    """Hashes of 16 hexadecimal digits, one behind another; each stands for all before it too."""
    if not isinstance(prefix, str) or len(prefix) % _DIGITS:
        raise ValueError("prefix is no row of hashes of 16 digits")
    starts = range(0, len(prefix), _DIGITS)
    blocks = tuple(int(prefix[start : start + _DIGITS], 16) for start in starts)
    return tuple(dict.fromkeys(blocks))
