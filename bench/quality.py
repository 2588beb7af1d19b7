"""What a smaller dtype costs in quality: KL divergence and top-1 agreement against fp32.

    python bench/quality.py [--quick] [--json] [--variant bf16,int8,bf16/int8,int8/int8]

Law of this file: every variant reads exactly the same tokens (teacher forcing), in chunks, so that
most keys and values come from its cache; texts are real ones (this repository's, and those beside
it) and what the fp32 engine itself says, greedily and sampled. `int8/int8` is dtype int8 with an
int8 key-value cache. At least 4,000 positions, some 600 with --quick.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from divergence import Divergence, Summary, divergence, joined, summary
from hf_model import default_gguf
from ridgeline.errors import RidgelineError
from ridgeline.serving.engine.model_files import ModelFiles, open_model
from ridgeline.serving.engine.runner import Runner
from rows import Better, Record, Row, add_options, measured, report, say
from runners import blocks_for, logits_of, runner_of, tensors_of

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ("README.md", "LICENSE", "CONTRIBUTING.md", "docs/**/*.md")
VARIANTS = ("bf16", "int8", "bf16/int8", "int8/int8")
CHUNK = 96  # rows of a step, and of the logits held at once
PROMPTS = (
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain how a bicycle stays upright.",
    "List five uses for a paper clip.",
    "What is 17 times 23? Show your steps.",
    "Translate into Spanish: the library opens at nine.",
    "Summarise the story of Little Red Riding Hood.",
    "Why is the sky blue?",
    "Write a Python function that reverses a list.",
    "Give me a recipe for tomato soup.",
    "Who was Ada Lovelace?",
    "Describe a rainy day in a big city.",
    "What are the phases of the moon?",
    "How do I sort a list of names by last name?",
    "Write an email that asks for a day off.",
    "What is the difference between a virus and a bacterium?",
)


@dataclass(frozen=True, slots=True)
class Passage:
    """Token ids, of which the last `scored` are predicted and compared."""

    kind: str
    tokens: list[int]
    scored: int


@dataclass(frozen=True, slots=True)
class Size:
    """How much is read: windows of text, and continuations of the prompts."""

    windows: int
    window: int
    prompts: int
    said: int


FULL, QUICK = Size(12, 384, 16, 64), Size(2, 224, 4, 32)


def windows(texts: Sequence[Sequence[int]], count: int, length: int) -> list[Passage]:
    """`count` stretches of `length` tokens, spread evenly over all the texts, none overlapping.

    Raises ValueError where the texts hold fewer.
    """
    found = [
        list(text[at : at + length])
        for text in texts
        for at in range(0, len(text) - length + 1, length)
    ]
    if len(found) < count:
        raise ValueError(f"the texts hold {len(found)} stretches of {length} tokens, not {count}")
    picked = [found[at * len(found) // count] for at in range(count)]
    return [Passage("text", tokens, length - 1) for tokens in picked]


def read_texts(files: ModelFiles) -> list[list[int]]:
    """The texts of this repository and beside it, as tokens, in a fixed order."""
    paths = sorted({path for pattern in TEXTS for path in ROOT.glob(pattern)}
                   | set((ROOT.parent / "shared").glob("*.md")))  # fmt: skip
    return [files.tokenizer.encode(path.read_text(encoding="utf-8")) for path in paths]


def chosen(logits: np.ndarray, temperature: float, chance: np.random.Generator) -> int:
    """The likeliest token, or one drawn at a temperature."""
    if temperature == 0.0:
        return int(logits.argmax())
    noise = chance.gumbel(size=len(logits))
    return int((logits / temperature + noise).argmax())


def continuations(
    runner: Runner, prompts: Sequence[list[int]], size: Size, temperature: float, ends: set[int]
) -> list[Passage]:
    """What the runner says after each prompt, up to its end or `size.said` tokens."""
    kind = "greedy" if temperature == 0.0 else "sampled"
    chance = np.random.default_rng(5)
    found = []
    for prompt in prompts:
        tokens = list(prompt)
        most = len(prompt) + size.said
        logits = logits_of(runner, tokens, 0, 1)
        while len(tokens) < most:
            tokens.append(chosen(logits[0], temperature, chance))
            if tokens[-1] in ends:
                break
            logits = logits_of(runner, tokens[-1:], len(tokens) - 1, 1)
        found.append(Passage(kind, tokens, len(tokens) - len(prompt)))
    return found


def scored_logits(runner: Runner, passage: Passage) -> Iterator[tuple[int, np.ndarray]]:
    """Chunk by chunk: the position of the first scored row, and the logits of the scored rows."""
    tokens = passage.tokens[:-1]  # nothing follows the last
    first = len(passage.tokens) - passage.scored - 1
    for start in range(0, len(tokens), CHUNK):
        rows = tokens[start : start + CHUNK]
        wanted = min(len(rows), max(start + len(rows) - first, 0))
        logits = logits_of(runner, rows, start, wanted) if wanted else None
        if logits is None:  # the cache must hold them all the same
            logits_of(runner, rows, start, 1)
        else:
            yield start + len(rows) - wanted, logits


def compare(reference: Runner, other: Runner, passage: Passage) -> Divergence:
    """Both runners on one passage."""
    both = zip(scored_logits(reference, passage), scored_logits(other, passage), strict=True)
    return joined(
        divergence(ours, theirs, passage.tokens[at + 1 : at + 1 + len(ours)])
        for (at, ours), (_, theirs) in both
    )


def variant_rows(name: str, found: Summary) -> list[Row]:
    """A variant's rows."""
    less = Better.LESS
    return [
        measured(f"{name} KL mean", "nats", found.kl_mean, better=less),
        measured(f"{name} KL p99", "nats", found.kl_p99, better=less),
        measured(f"{name} KL max", "nats", found.kl_max, better=less),
        measured(f"{name} top-1 agreement", "share", found.top1_agreement),
        measured(f"{name} perplexity over fp32's", "ratio", found.perplexity_ratio, better=less),
    ]


def passages_of(files: ModelFiles, reference: Runner, size: Size) -> list[Passage]:
    """All that is read: real text, and the reference's own words."""
    asked = [
        files.tokenizer.encode(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")
        for text in PROMPTS[: size.prompts]
    ]
    ends = set(files.architecture.eos_ids)
    read = windows(read_texts(files), size.windows, size.window)
    for temperature in (0.0, 1.0):
        read += continuations(reference, asked, size, temperature, ends)
    return read


def measure_all(options: argparse.Namespace) -> Record:
    """Every variant against fp32, on the same passages."""
    size = QUICK if options.quick else FULL
    files = open_model(default_gguf())
    blocks = blocks_for(1, max(size.window, 64 + size.said))
    reference = _runner(files, "fp32", blocks)
    say("the fp32 engine speaks ...")
    passages = passages_of(files, reference, size)
    rows, details = [], {}
    for name in options.variant:
        say(f"{name} reads {sum(p.scored for p in passages):,} positions ...")
        other = _runner(files, name, blocks)
        found = [compare(reference, other, passage) for passage in passages]
        rows += variant_rows(name, summary(joined(found)))
        details[name] = _by_kind(passages, found)
    positions = sum(p.scored for p in passages)
    notes = [
        f"{positions:,} positions, teacher-forced: {size.windows} stretches of text, and what fp32 "
        f"says after {size.prompts} prompts, greedily and sampled. KL(fp32 || variant)."
    ]
    return Record("quality", rows, options.quick, notes, {"positions": positions, **details})


def _runner(files: ModelFiles, variant: str, blocks: int) -> Runner:
    dtype, _, kv_dtype = variant.partition("/")
    tensors = tensors_of(files, dtype)
    return runner_of(files.architecture, tensors, dtype, kv_dtype or "auto", blocks=blocks)


def _by_kind(passages: Sequence[Passage], found: Sequence[Divergence]) -> dict[str, Any]:
    kinds = dict.fromkeys(passage.kind for passage in passages)
    return {
        kind: asdict(
            summary(joined(f for p, f in zip(passages, found, strict=True) if p.kind == kind))
        )
        for kind in kinds
    }


def _variants(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in VARIANTS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"there is no {unknown[0]!r}; there are {', '.join(VARIANTS)}"
        )
    return names


def main() -> int:
    """Compares and prints; 2 when it could not be measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser)
    parser.add_argument(
        "--variant", type=_variants, default=list(VARIANTS), metavar=",".join(VARIANTS)
    )
    options = parser.parse_args()
    try:
        record = measure_all(options)
    except RidgelineError as error:
        print(f"quality bench: {error}", file=sys.stderr)
        return 2
    return report(record, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
