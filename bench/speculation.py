"""What guessing tokens gains where text repeats itself, and that it costs nothing elsewhere.

    python bench/speculation.py [--quick] [--json] [--dtype bf16|int8|fp32] [--draft-tokens 8]

Law of this file: two engines of the default model in one process, one with `speculation` "ngram",
the other with "off", answer the same requests one right after the other, and the next round goes
the other way round. They must say the same, token for token, or nothing is reported. Tokens/s count
from the moment when every request has its first token, so prompts are not in them.

Texts that repeat are copied from the prompt, greedily; plain ones answer questions, drawn at a
temperature of 0.8. With 16 requests at once the switch has to find by itself what guesses pay.
Before that, the room that there is: steps of several rows a sequence, over the step of one row.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from floor import SMOLLM2_135M
from hf_model import default_gguf
from quality import PROMPTS
from ridgeline.errors import BenchError, RidgelineError
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.loop import Engine
from ridgeline.serving.engine.messages import Add, Sampling, Stats
from ridgeline.serving.engine.model import DTYPES
from ridgeline.serving.engine.runner import Rows
from rows import Better, Record, Row, add_options, compared, measured, report, say
from runners import blocks_for, runner_of, table
from step import random_weights

ROOT = Path(__file__).resolve().parents[1]
LANES = 16
OUTPUT_TOKENS = 128
COPIED_CHARS = 500
NO_SLOWER = 0.98
CONTEXT = 256
WIDTHS = ((1, 5), (1, 9), (1, 16), (1, 17), (4, 5), (8, 5), (16, 1), (16, 2), (16, 5))
"""Sequences, and rows of each."""


@dataclass(frozen=True, slots=True)
class Case:
    """Requests of one kind, so many at once; `target` is the least ratio of tokens/s."""

    name: str
    texts: Sequence[str]
    lanes: int
    rules: Sampling
    target: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """What one engine made of a case."""

    tokens_per_s: float
    said: dict[str, list[int]]
    draft_tokens: int
    accepted_tokens: int


def passages() -> list[str]:
    """Paragraphs of this repository's documents, as texts that are to be copied."""
    texts = [
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs/guide").glob("*.md"))
    ]
    joined = "\n".join(texts).split("\n\n")
    prose = [
        part[:COPIED_CHARS] for part in joined if len(part) >= COPIED_CHARS and "|" not in part
    ]
    return [f"Repeat this text word for word:\n\n{text}" for text in prose[:LANES]]


def cases(*, quick: bool) -> list[Case]:
    """Every kind of text, alone and under load."""
    copied = Sampling(max_tokens=OUTPUT_TOKENS, temperature=0)
    drawn = Sampling(max_tokens=OUTPUT_TOKENS, temperature=0.8, seed=1)
    alone = 3 if quick else 8
    copies, questions = passages(), PROMPTS[:LANES]
    return [
        Case("repeats c1", copies[:alone], 1, copied, None),
        Case("plain c1", questions[:alone], 1, drawn, NO_SLOWER),
        Case(f"repeats c{LANES}", copies, LANES, copied, NO_SLOWER),
        Case(f"plain c{LANES}", questions, LANES, drawn, NO_SLOWER),
    ]


def engine_of(options: argparse.Namespace, speculation: str) -> Engine:
    """An engine as `ridgeline serve` makes it, but for its seats."""
    config = EngineConfig(
        default_gguf(),
        dtype=options.dtype,
        max_seqs=LANES,
        speculation=speculation,
        draft_tokens=options.draft_tokens,
    )
    return Engine(config)


def answered(engine: Engine, case: Case, round_: int) -> Run:
    """All requests of a case, `lanes` at a time."""
    before, taken_s, counted = engine.step().stats, 0.0, 0
    said: dict[str, list[int]] = {}
    for start in range(0, len(case.texts), case.lanes):
        group = case.texts[start : start + case.lanes]
        for number, text in enumerate(group, start):
            add = Add(f"{case.name} {round_} {number}", ids_of(engine, text), case.rules)
            said[add.id] = []
            engine.add(add)
        _spoken(engine, said, until_all_speak=True)
        spoken = sum(map(len, said.values()))
        began_s = time.perf_counter()
        after = _spoken(engine, said, until_all_speak=False)
        taken_s += time.perf_counter() - began_s
        counted += sum(map(len, said.values())) - spoken
    return Run(
        counted / taken_s,
        said,
        after.draft_tokens - before.draft_tokens,
        after.accepted_tokens - before.accepted_tokens,
    )


def ids_of(engine: Engine, text: str) -> list[int]:
    """A question as the default model wants it."""
    asked = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    return engine.files.tokenizer.encode(asked)


def _spoken(engine: Engine, said: dict[str, list[int]], *, until_all_speak: bool) -> Stats:
    """Steps until every request has spoken, or all are through."""
    stats = Stats()
    while engine.busy and not (until_all_speak and all(said.values())):
        stepped = engine.step()
        stats = stepped.stats
        for output in stepped.outputs:
            said[output.id] += output.tokens
    return stats


def rows_of(case: Case, pairs: Sequence[tuple[Run, Run]]) -> list[Row]:
    """A case's rows from its rounds, each (on, off)."""
    on, off = ([run.tokens_per_s for run in side] for side in zip(*pairs, strict=True))
    found = [compared(case.name, "tokens/s", on, off, target=case.target)]
    tokens = sum(len(t) for run, _ in pairs for t in run.said.values())
    drafted, accepted = (
        sum(getattr(run, what) for run, _ in pairs) for what in ("draft_tokens", "accepted_tokens")
    )
    found.append(measured(f"{case.name} guesses a token", "guesses", drafted / tokens))
    if drafted:
        found.append(measured(f"{case.name} guesses that held", "share", accepted / drafted))
    return found


def width_rows(dtype: str, repeats: int) -> list[Row]:
    """The least time of a step of so many rows, over that of one row."""
    blocks = blocks_for(LANES, CONTEXT)
    runner = runner_of(SMOLLM2_135M, random_weights(SMOLLM2_135M), dtype, blocks=blocks)
    least_s = dict.fromkeys([(1, 1), *WIDTHS], float("inf"))
    for _ in range(repeats):
        for sequences, width in least_s:
            rows = [
                Rows([100 + one] * width, CONTEXT - width, table(one, CONTEXT), samples=width)
                for one in range(sequences)
            ]
            began_s = time.perf_counter()
            runner.run(rows, [])
            taken_s = time.perf_counter() - began_s
            least_s[sequences, width] = min(least_s[sequences, width], taken_s)
    one_ms = 1e3 * least_s[1, 1]
    return [
        compared(f"step {n}x{width}", "ms", [1e3 * least_s[n, width]], [one_ms], better=Better.LESS)
        for n, width in WIDTHS
    ]


def measure(options: argparse.Namespace) -> list[Row]:
    """Every case on both engines. Raises BenchError where they do not say the same."""
    say("measuring steps ...")
    found = width_rows(options.dtype, 5 if options.quick else 40)
    say("loading two engines ...")
    engines = {which: engine_of(options, which) for which in ("ngram", "off")}
    for case in cases(quick=options.quick):
        pairs = []
        for round_ in range(1 if options.quick else 3):
            order = list(engines) if round_ % 2 == 0 else list(engines)[::-1]
            runs = {which: answered(engines[which], case, round_) for which in order}
            if runs["ngram"].said != runs["off"].said:
                raise BenchError(f"{case.name}: an answer differs with speculation")
            pairs.append((runs["ngram"], runs["off"]))
            say(
                f"  {case.name}: "
                + ", ".join(f"{w} {r.tokens_per_s:.1f}/s" for w, r in runs.items())
            )
        found += rows_of(case, pairs)
    return found


def main() -> int:
    """Measures and prints; 1 when a target is missed, 2 when it could not be measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--draft-tokens", type=int, default=8)
    options = parser.parse_args()
    try:
        found = measure(options)
    except RidgelineError as error:
        print(f"speculation bench: {error}", file=sys.stderr)
        return 2
    note = f"SmolLM2-135M {options.dtype}, at most {OUTPUT_TOKENS} tokens; answers were equal."
    record = Record("speculation", found, options.quick, [note])
    return report(record, as_json=options.json, ours="ngram", peer="off")


if __name__ == "__main__":
    sys.exit(main())
