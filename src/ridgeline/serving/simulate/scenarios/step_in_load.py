"""Three times the load at once, and a minute until a replica helps (ledger row S063).

The five settings that decide: what one replica is to serve, the fewest and the most there may be,
and the two windows, up and down. Who is turned away meanwhile, or leaves after ten seconds without
a token, is dropped. The same step is played with the settings tuned for it, with usual ones, and
with others' formulas under the tuned ones.
"""

from dataclasses import dataclass
from itertools import islice

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.scale import Settings, Step
from ridgeline.serving.policy.scale_rules import OURS, Rule
from ridgeline.serving.simulate.clients import Manners, OpenLoop
from ridgeline.serving.simulate.setup import Engine, Model, Scaling, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request, parse_arrivals, parse_sizes, synthetic

SLOTS, TOKENS, STEP_S, START_S = 8, 100, 0.02, 60.0
BEFORE_PER_S, TIMES, STEP_AT_S, LASTS_S = 8.0, 3, 120.0, 600.0
#: A client leaves that has no token by then.
PATIENCE_S = 10.0

#: Half of the slots: twice the load finds room at once, and what is beyond it waits for a start.
TUNED = Settings(4, 16, SLOTS / 2, Step(16, 60.0), down_after_s=300.0)
#: As they are where nobody tuned: 80 % of the slots, two at a time.
USUAL = Settings(1, 16, 0.8 * SLOTS, Step(2, 60.0), down_after_s=300.0)


@dataclass(frozen=True, slots=True)
class Played:
    """What became of the step: shares of requests and of replicas' time, the most replicas."""

    dropped: float
    waited_p99_s: float
    idle: float
    replica_hours: float
    most: int


def played(settings: Settings, rule: Rule = OURS, *, seed: int = 1) -> Played:
    """The step under these settings; it begins with the replicas that the load before it needs."""
    engine = Engine(Machine(Plain(STEP_S, 0.0, 1e9), 100_000), max_seqs=SLOTS)
    first = round(BEFORE_PER_S * TOKENS * STEP_S / settings.per_replica + 0.499)
    model = Model(
        "chat", engine, first, Scaling(settings, rule=rule), {"start": START_S}, slots=SLOTS,
        rule="least-load",
    )  # fmt: skip
    clients = OpenLoop(_requests(seed), "chat", manners=Manners(first_token_s=PATIENCE_S))
    outcome = simulate(Serving((model,), seed=seed), clients)
    there_s = sum(one.there_s for one in outcome.replicas)
    held_s = float((outcome.e2e_s() - outcome.ttft_s()).sum())
    late_s = sorted(outcome.ttft_s())
    return Played(
        1 - float(outcome.answered.mean()),
        float(late_s[int(0.99 * len(late_s))]),
        1 - held_s / (there_s * SLOTS),
        outcome.replica_hours,
        max((count for _, _, count, _ in outcome.scaled), default=first),
    )


def _requests(seed: int) -> list[Request]:
    sizes = [parse_sizes(str(size), where="sizes") for size in (50, TOKENS)]
    drawn = synthetic(parse_arrivals("poisson"), *sizes, rate_per_s=BEFORE_PER_S, seed=seed)
    until = int(BEFORE_PER_S * (STEP_AT_S + TIMES * (LASTS_S - STEP_AT_S)))
    found = []
    for one in islice(drawn, until):
        at_s = one.at_s
        if at_s > STEP_AT_S:
            at_s = STEP_AT_S + (at_s - STEP_AT_S) / TIMES
        found.append(Request(at_s, one.prompt_tokens, one.output_tokens))
    return found
