"""What a run measured, as one value: for the table, for JSON, for comparison.

Definitions are in `sample` (per request), `spread` (percentiles) and `goodput`; rates are over
the time from the run's beginning to its last answer. Failed requests are in no latency.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any

from ridgeline.errors import SpecError
from ridgeline.serving.bench.drive import Driven
from ridgeline.serving.bench.goodput import Goodput, Slo, goodput
from ridgeline.serving.bench.sample import Sample
from ridgeline.serving.bench.spread import Spread, spread
from ridgeline.serving.bench.strain import Strain

SCHEMA = "ridgeline.bench.load/1"
SAME_TOKENS_SHARE = 0.02
CACHED_WORTH_TELLING = 0.01
BLUR_SHARE = 0.5
SPREADS = ("ttft", "scheduled_ttft", "tpot", "itl", "e2e", "send_lag")


@dataclass(frozen=True, slots=True)
class Setting:
    """What was asked of whom, in words, and the numbers to order and repeat it by.

    `load` is a rate in requests/s (open loop) or a number of workers (closed loop), None for a
    replayed trace. `seed` repeats the schedule and the prompts.
    """

    url: str
    model: str
    api: str
    loop: str
    closed: bool
    load: float | None
    sizes: str
    seed: int
    exact_sizes: bool = True
    shared_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """One run. Times in seconds; spreads are None where nothing was measured.

    `arriving_s` is when the last request was due in an open loop, 0 in a closed one.
    """

    setting: Setting
    slo: Slo | None
    duration_s: float
    arriving_s: float
    completed: int
    failed: int
    unfinished: int
    interrupted: bool
    errors: Mapping[str, int]
    output_tokens: int
    prompt_tokens: int
    cached_tokens: int
    ttft: Spread | None
    scheduled_ttft: Spread | None
    tpot: Spread | None
    itl: Spread | None
    e2e: Spread | None
    send_lag: Spread | None
    goodput: Goodput
    strain: Strain
    notes: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = field(default=(), repr=False, compare=False)

    @property
    def requests_per_s(self) -> float:
        """Whole answers per second."""
        return self.completed / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens of whole answers per second."""
        return self.output_tokens / self.duration_s if self.duration_s > 0 else 0.0

    def to_dict(self, *, samples: bool = False) -> dict[str, Any]:
        """The report as JSON says it, rates and shares included; on demand every request too."""
        said = asdict(replace(self, samples=self.samples if samples else ()))
        if not samples:
            del said["samples"]
        said["slo"] = None if self.slo is None else _finite(asdict(self.slo))
        said["goodput"]["share"] = self.goodput.share
        rates = {
            "requests_per_s": self.requests_per_s,
            "output_tokens_per_s": self.output_tokens_per_s,
        }
        return {"schema": SCHEMA, **rates, **said}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any], *, where: str) -> "Report":
        """A saved report, read again; raises SpecError for anything else."""
        if said.get("schema") != SCHEMA:
            raise SpecError(
                f"is no saved report ({SCHEMA})",
                where=where,
                remedy="a file written by bench load --save, of a single run",
            )
        fields = {name: said[name] for name in cls.__dataclass_fields__ if name != "samples"}
        for name in SPREADS:
            fields[name] = Spread(**said[name]) if said[name] else None
        good = {name: said["goodput"][name] for name in Goodput.__dataclass_fields__}
        fields |= {
            "setting": Setting(**said["setting"]),
            "slo": None if said["slo"] is None else Slo(**said["slo"]),
            "goodput": Goodput(**good),
            "strain": Strain(**said["strain"]),
            "notes": tuple(said["notes"]),
        }
        return cls(**fields)


def _finite(bounds: dict[str, float]) -> dict[str, float]:
    return {name: bound for name, bound in bounds.items() if bound < inf}


def report(driven: Driven, setting: Setting, slo: Slo | None, notes: Sequence[str] = ()) -> Report:
    """Sum up a run. Without objectives, goodput is the share of whole answers."""
    whole = [sample for sample in driven.samples if sample.ok]
    errors = Counter(s.answer.error or "no tokens" for s in driven.samples if not s.ok)
    return Report(
        setting=setting,
        slo=slo,
        duration_s=driven.duration_s,
        arriving_s=0.0 if setting.closed else max(s.scheduled_s for s in driven.samples),
        completed=len(whole),
        failed=len(driven.samples) - len(whole),
        unfinished=driven.unfinished,
        interrupted=driven.interrupted,
        errors=dict(errors.most_common()),
        output_tokens=sum(sample.output_tokens for sample in whole),
        prompt_tokens=sum(sample.answer.prompt_tokens or 0 for sample in whole),
        cached_tokens=sum(sample.answer.cached_tokens or 0 for sample in whole),
        ttft=spread([s.ttft_s for s in whole if s.ttft_s is not None]),
        scheduled_ttft=spread(
            [s.scheduled_ttft_s for s in whole if s.scheduled_ttft_s is not None]
        ),
        tpot=spread([s.tpot_s for s in whole if s.tpot_s is not None]),
        itl=spread([gap for s in whole for gap in s.gaps_s]),
        e2e=spread([s.e2e_s for s in whole]),
        send_lag=spread([s.lag_s for s in driven.samples]),
        goodput=goodput(driven.samples, slo or Slo(), driven.duration_s),
        strain=driven.strain,
        notes=(*notes, *_cross_checks(driven, whole, setting), *_blur(driven, whole)),
        samples=driven.samples,
    )


def _cross_checks(driven: Driven, whole: Sequence[Sample], setting: Setting) -> list[str]:
    """What the reader must know to read the numbers rightly."""
    notes = [_first_words(driven.samples, kind) for kind in _kinds(driven.samples)]
    checks = (_usage, _pieces, _lengths, _cached)
    if whole:
        notes += [note for check in checks if (note := check(whole, setting))]
    return notes


def _blur(driven: Driven, whole: Sequence[Sample]) -> list[str]:
    """Whether the client's own hiccups show in the tail of the gaps between tokens."""
    gaps = spread([gap for sample in whole for gap in sample.gaps_s])
    late_s = driven.strain.loop_late_s
    if gaps is None or late_s <= BLUR_SHARE * gaps.p99:
        return []
    return [f"the client itself was {1e3 * late_s:.1f} ms late at p99: that is in the tail of ITL"]


def _kinds(samples: Sequence[Sample]) -> list[str]:
    return sorted({s.answer.error for s in samples if s.answer.error and s.answer.detail})


def _first_words(samples: Sequence[Sample], kind: str) -> str:
    said = next(s.answer.detail for s in samples if s.answer.error == kind and s.answer.detail)
    return f"{kind}: {said}"


def _usage(whole: Sequence[Sample], _: Setting) -> str:
    without = sum(sample.answer.output_tokens is None for sample in whole)
    if not without:
        return ""
    return f"{without} answers came without usage: their tokens are counted as pieces of the stream"


def _pieces(whole: Sequence[Sample], _: Setting) -> str:
    """Tokens by usage against pieces with content: they should be one to one."""
    counted = [s for s in whole if s.answer.output_tokens is not None]
    tokens = sum(s.output_tokens for s in counted)
    pieces = sum(len(s.answer.token_times_s) for s in counted)
    if not counted or abs(tokens - pieces) <= SAME_TOKENS_SHARE * tokens:
        return ""
    if tokens < pieces:
        return f"usage counts {tokens} tokens but {pieces} pieces came: one of the two is wrong"
    return f"{tokens / pieces:.2f} tokens came in a piece: ITL is between pieces, TPOT per token"


def _lengths(whole: Sequence[Sample], setting: Setting) -> str:
    """Whether prompts and answers had the sizes that were asked for."""
    asked = sum(s.asked_prompt_tokens for s in whole)
    got = sum(s.answer.prompt_tokens or 0 for s in whole)
    parts = []
    if got and abs(asked - got) > SAME_TOKENS_SHARE * asked:
        parts.append(f"prompts had {got / len(whole):.1f} tokens, not {asked / len(whole):.1f}")
    if not setting.exact_sizes:
        parts.append("prompt sizes are approximate: the server has no /tokenize")
    asked_out = sum(s.asked_output_tokens for s in whole)
    got_out = sum(s.output_tokens for s in whole)
    if got_out < (1 - SAME_TOKENS_SHARE) * asked_out:
        share = f"{got_out / len(whole):.0f} of {asked_out / len(whole):.0f}"
        parts.append(f"answers ended after {share} tokens (--ignore-eos runs them to the end)")
    return "; ".join(parts)


def _cached(whole: Sequence[Sample], setting: Setting) -> str:
    prompt = sum(s.answer.prompt_tokens or 0 for s in whole)
    share = sum(s.answer.cached_tokens or 0 for s in whole) / prompt if prompt else 0.0
    if share <= CACHED_WORTH_TELLING:
        return ""
    if setting.shared_tokens:
        why = f" (they share their first {setting.shared_tokens} tokens)"
    else:
        why = " (a chat template begins all prompts alike)" if setting.api == "chat" else ""
    return f"{100 * share:.1f} % of prompt tokens came from the server's prefix cache{why}"
