"""Experiments on servers under pressure: a burst that does not drain, a cache that is too tight."""

from typing import Literal

from ridgeline.platform.experiments import experiment
from ridgeline.serving.policy.batch import Batcher, Limits, Sequence
from ridgeline.serving.policy.blocks import BlockBook


@experiment("burst", cost=lambda period_s, step_s, **_: 2 * period_s / max(step_s, 1e-9))
def burst(
    slots: int = 64,
    residence_s: float = 20.0,
    load: float = 0.9,
    overload_waste: float = 0.12,
    requests: int = 300,
    period_s: float = 20_000.0,
    step_s: float = 1.0,
) -> float:
    """Requests in flight a period after a burst hit a busy server, as a fluid.

    Slots serve at a steady rate; past them a share of it is lost to computing preempted requests
    anew. The ledger's row names neither slots nor residence: 64 slots of 20 s are ours.
    """
    served_a_s = slots / residence_s
    arriving_a_s = load * served_a_s
    inside = arriving_a_s * residence_s + requests
    for _ in range(int(period_s / step_s)):
        leaving = served_a_s * (1 - overload_waste) if inside > slots else inside / residence_s
        inside += (arriving_a_s - leaving) * step_s
    return inside


class _Restarting(Batcher):
    """The known bad rule: a preempted sequence forgets what it generated and queues anew."""

    def set_back(self, victim: Sequence) -> None:
        """Back to its prompt, behind all others."""
        super().set_back(victim)
        self._births += 1
        victim.tokens, victim.rank = victim.prompt, (0, self._births, 0)

    def may_admit(self, preempted: int) -> bool:  # noqa: ARG002 - the house's rule looks at it
        """Into the blocks that the same step has just freed."""
        return True


@experiment("tight-cache", cost=lambda sequences, steps, **_: 20 * sequences * steps)
def tight_cache(
    sequences: int = 4,
    prompt_tokens: int = 16,
    output_tokens: int = 32,
    blocks: int = 4,
    block_tokens: int = 16,
    victim: Literal["oldest", "newest"] = "oldest",
    restart: Literal["from-zero", "keeps-tokens"] = "from-zero",
    steps: int = 100,
) -> tuple[float, float]:
    """Preemptions and completions where sequences outgrow their blocks, with the house's batcher.

    `oldest` and `from-zero` are known to be bad, each in its way; the house evicts the newest and
    keeps its tokens (decisions/0005).
    """
    kind = _Restarting if restart == "from-zero" else Batcher
    at = {"oldest": 0, "newest": -1}[victim]
    limits = Limits(sequences, max(64, sequences * prompt_tokens))
    batcher = kind(limits, BlockBook(blocks, block_tokens), victim=lambda running: running[at])
    for number in range(sequences):
        batcher.add(str(number), prompt_tokens, output_tokens)
    preempted, made = 0, dict.fromkeys(map(str, range(sequences)), 0)
    for _ in range(steps):
        if not made:
            break
        step = batcher.decide()
        batcher.commit(step)
        preempted += len(step.preempted)
        made |= dict.fromkeys(step.preempted if restart == "from-zero" else (), 0)
        for chunk in step.chunks:
            made[chunk.id] += chunk.samples
            if made[chunk.id] == output_tokens:
                batcher.finish(chunk.id)
                del made[chunk.id]
    return float(preempted), float(sequences - len(made))
