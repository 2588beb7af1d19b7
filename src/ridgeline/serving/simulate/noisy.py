"""What one tenant that grows does to the others, under each way to hold it (ledger row S086).

All tenants ask alike at first. Then one sends as many requests as before, each so many times as
large. Compared is the others' 99th percentile of the whole time, of requests that are the same in
every run. Request limits are shown with a queue that is first come, first served and with fair
turns; token limits with fair turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ridgeline.serving.fake.timing import machine
from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.simulate.asked import End
from ridgeline.serving.simulate.outcome import Outcome, percentile
from ridgeline.serving.simulate.tenants import Setup, Tenant, of, shared, tokens
from ridgeline.workload import Sizes

NOISY = "noisy"
_PROMPT, _OUTPUT = Sizes("lognormal", 500, 0.6), Sizes("lognormal", 120, 0.6)
ISOLATED, SHARED = 0.1, 1.0  # of the others' p99: up to so much more is called that


@dataclass(frozen=True, slots=True)
class Alike:
    """What every tenant asks for at first."""

    tenants: int = 12
    rate_per_s: float = 1.1
    prompt: Sizes = _PROMPT
    output: Sizes = _OUTPUT

    def all(self, times: int = 1, limits: Limits | None = None) -> list[Tenant]:
        """The tenants; the last is the noisy one, so many times as large and limited."""
        quiet = Tenant("", self.rate_per_s, self.prompt, self.output)
        others = [replace(quiet, name=f"quiet-{n}") for n in range(1, self.tenants)]
        noisy = replace(quiet, name=NOISY, times=times, limits=limits or Limits())
        return [*others, noisy]

    def quota(self, room: float = 1.0) -> Limits:
        """Tokens of one tenant in a minute as it asks at first, with room for more."""
        requests = 60 * self.rate_per_s * room
        return Limits(
            input_tokens_per_minute=round(requests * self.prompt.first),
            output_tokens_per_minute=round(requests * self.output.first),
        )

    @property
    def others(self) -> frozenset[str]:
        """All but the noisy one."""
        return frozenset(tenant.name for tenant in self.all()) - {NOISY}

    @property
    def request_limit(self) -> Limits:
        """Twice the requests of one tenant in a minute, so that chance does not pass it."""
        return Limits(requests_per_minute=round(2 * 60 * self.rate_per_s))


@dataclass(frozen=True, slots=True)
class Held:
    """One way to hold the noisy tenant. `moved` is the others' p99 beside what it was, less one."""

    by: str
    p99_s: float
    moved: float
    first_p99_s: float
    others_refused: int
    noisy_refused: int
    noisy_tokens: float

    @property
    def level(self) -> str:
        """How well it isolates."""
        if self.moved < ISOLATED:
            return "isolated"
        return "shared" if self.moved < SHARED else "not isolated"


@dataclass(frozen=True, slots=True)
class Study:
    """The others before (`p99_s`), each way to hold the noisy one, and what to do now."""

    p99_s: float
    first_p99_s: float
    ways: Sequence[Held]
    quota: Limits
    fix: str


def study(
    alike: Alike | None = None, *, times: int = 10, lasts_s: float = 300.0, seed: int = 1
) -> Study:
    """One tenant grows `times` as large; and each way to hold it."""
    alike = alike or Alike()
    setup = Setup(machine("llama-3.1-8b", "h100-sxm"), lasts_s=lasts_s, seed=seed)
    before = shared(alike.all(), setup)
    line = replace(setup, fair=False)
    ways = [
        _held("request limits", alike.all(times, alike.request_limit), line, before),
        _held("fair turns", alike.all(times), setup, before),
        _held("both of these", alike.all(times, alike.request_limit), setup, before),
        _held("token limits", alike.all(times, alike.quota()), setup, before),
        _held(
            "token limits, half as much again", alike.all(times, alike.quota(1.5)), setup, before
        ),
    ]
    quiet = of(before, alike.others)
    return Study(_p99_s(quiet), _first_p99_s(quiet), ways, alike.quota(), _fix(alike))


def table(found: Study) -> str:
    """The study for people, in Markdown."""
    lines = [
        "| the noisy one is held by | others' p99 | moved | first token p99 | its tokens | level |",
        "|---|---|---|---|---|---|",
        f"| (before it grew) | {found.p99_s:.2f} s | | {found.first_p99_s:.2f} s | 1.0x | |",
    ]
    lines += [
        f"| {way.by} | {way.p99_s:.2f} s | {way.moved:+.0%} | {way.first_p99_s:.2f} s "
        f"| {way.noisy_tokens:.1f}x | {way.level} |"
        for way in found.ways
    ]
    return "\n".join(lines)


def _held(by: str, tenants: Sequence[Tenant], setup: Setup, before: Outcome) -> Held:
    noisy = frozenset({NOISY})
    others = frozenset(tenant.name for tenant in tenants) - noisy
    after = shared(tenants, setup)
    p99_s = _p99_s(of(after, others))
    return Held(
        by,
        p99_s,
        p99_s / _p99_s(of(before, others)) - 1,
        _first_p99_s(of(after, others)),
        of(after, others).count(End.REFUSED),
        of(after, noisy).count(End.REFUSED),
        tokens(of(after, noisy)) / tokens(of(before, noisy)),
    )


def _p99_s(outcome: Outcome) -> float:
    return percentile(outcome.e2e_s(), 0.99)


def _first_p99_s(outcome: Outcome) -> float:
    return percentile(outcome.ttft_s(), 0.99)


def _fix(alike: Alike) -> str:
    quota = alike.quota()
    return (
        f"limit {NOISY} to {quota.input_tokens_per_minute} input and "
        f"{quota.output_tokens_per_minute} output tokens a minute, what it used before; "
        "a limit on requests does not see how large they are"
    )
