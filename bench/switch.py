"""What the switch of speculation makes of machines that are made up: no clock is read here.

    python bench/switch.py [--quick] [--json] [--draft-tokens 8]

Law of this file: answers are recorded once, from an engine without guesses, and replayed through
the engine's own `Speculator`, where steps take what a formula says, so the numbers are the same on
any machine, however busy. `bench/speculation.py` measures real steps. A noisy machine's steps
scatter by 30 %, and one in thirty takes five times as long.
"""

import argparse
import itertools
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from ridgeline.errors import RidgelineError
from ridgeline.serving.engine.draft import Guesser, NgramDraft
from ridgeline.serving.engine.speculator import Speculator
from rows import Record, Row, add_options, compared, report, say
from speculation import NO_SLOWER, answered, cases, engine_of, ids_of

LANES = (1, 4, 16)
Text = tuple[list[int], list[int]]  # a prompt, and what was said after it
Machine = Callable[[int], float]

MACHINES: dict[str, Machine] = {
    "flat": lambda rows: 0.010 + 0.00016 * max(0, rows - 16),
    "ramp": lambda rows: max(0.010, 0.007 + 0.0011 * rows),
    "steep": lambda rows: 0.008 + 0.002 * rows,
}
"""Seconds of a step by its rows: tiles of 16 rows; weights, then arithmetic; arithmetic only."""


@dataclass(slots=True)
class Reader:
    """A sequence whose tokens are known beforehand: all that the speculator asks of one."""

    id: str
    tokens: list[int]
    future: list[int]
    guesser: Guesser | None = None
    room: int = 99

    def hear(self, guesses: Sequence[int]) -> int:
        """One step: guesses up to the first that is wrong, and a token; how many there were."""
        held = 0
        while held < min(len(guesses), len(self.future) - 1) and guesses[held] == self.future[held]:
            held += 1
        self.tokens += self.future[: held + 1]
        del self.future[: held + 1]
        return held + 1


def noisy(machine: Machine, seed: int) -> Machine:
    """The same on a machine that others use."""
    chance = random.Random(seed)
    return lambda rows: (
        machine(rows) * chance.lognormvariate(0, 0.3) * (5 if chance.random() < 0.03 else 1)
    )


def tokens_per_s(
    texts: Sequence[Text], lanes: int, machine: Machine, speculator: Speculator | None
) -> float:
    """So many texts at once, one after the other, until all are said."""
    waiting = [Reader(str(n), p + s[:1], s[1:]) for n, (p, s) in enumerate(texts) if len(s) > 1]
    running: list[Reader] = []
    heard, taken_s = 0, 0.0
    while waiting or running:
        while waiting and len(running) < lanes:
            running.append(waiting.pop(0))
        guesses = speculator.guesses(cast("list[Any]", running)) if speculator else {}
        rows = len(running) + sum(map(len, guesses.values()))
        step_s = machine(rows)
        taken_s += step_s
        if speculator:
            speculator.stepped(rows, step_s)
        heard += sum(reader.hear(guesses.get(reader.id, ())) for reader in running)
        running = [reader for reader in running if reader.future]
    return heard / taken_s


def recorded() -> dict[str, list[Text]]:
    """What the default model answers, by kind of text."""
    engine = engine_of(argparse.Namespace(dtype="bf16", draft_tokens=1), "off")
    found = {}
    for case in cases(quick=False):
        if case.lanes > 1:
            said = answered(engine, case, 0).said.values()
            prompts = [ids_of(engine, text) for text in case.texts]
            found[case.name.split()[0]] = list(zip(prompts, said, strict=True))
    return found


def replayed(
    texts: Sequence[Text], lanes: int, made: Callable[[int], Machine], times: int, most: int
) -> tuple[list[float], list[float]]:
    """Tokens/s with and without guesses, on so many machines made from a seed each."""
    on = [
        tokens_per_s(texts, lanes, made(seed), Speculator(NgramDraft, most))
        for seed in range(times)
    ]
    return on, [tokens_per_s(texts, lanes, made(seed), None) for seed in range(times)]


def rows_of(texts: dict[str, list[Text]], most: int, repeats: int) -> list[Row]:
    """Every kind of text on every machine, quiet and noisy, each so often in a row."""
    found = []
    for (name, machine), lanes in itertools.product(MACHINES.items(), LANES):
        quiet, loud = partial(_always, machine), partial(noisy, machine)
        for kind, some in texts.items():
            for case, made, times in ((name, quiet, 1), (f"{name}, noisy", loud, 5)):
                on, off = replayed(some * repeats, lanes, made, times, most)
                case = f"{case}: {kind} c{lanes}"
                found.append(compared(case, "tokens/s", on, off, target=NO_SLOWER))
    return found


def _always(machine: Machine, _: int) -> Machine:
    return machine


def main() -> int:
    """Records, replays, prints; 1 when guesses made a machine slower, 2 without answers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--draft-tokens", type=int, default=8)
    options = parser.parse_args()
    say("recording answers ...")
    try:
        texts = recorded()
    except RidgelineError as error:
        print(f"switch bench: {error}", file=sys.stderr)
        return 2
    say("replaying them ...")
    found = rows_of(texts, options.draft_tokens, 1 if options.quick else 3)
    note = "Step times are made up; answers are SmolLM2-135M's."
    record = Record("switch", found, options.quick, [note])
    return report(record, as_json=options.json, ours="ngram", peer="off")


if __name__ == "__main__":
    sys.exit(main())
