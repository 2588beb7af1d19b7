"""A long prompt among streams: what it does to them whole, and in chunks (ledger row S178).

Some streams decode; then one long prompt comes. Under each budget of tokens a step, the longest
wait between two tokens of any stream stands beside how long the prompt's own first token took.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline.physics.step_time import StepTime, roofline
from ridgeline.serving.fake.timing import Machine, machine
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

#: When the prompt comes: the streams are well under way by then.
_AT_S = 2.0


@dataclass(frozen=True, slots=True)
class Streams:
    """Who decodes: so many, each with a prompt and an answer of so many tokens."""

    count: int = 32
    prompt_tokens: int = 500
    output_tokens: int = 400


@dataclass(frozen=True, slots=True)
class Chunked:
    """One budget of tokens a step, and what came of it."""

    budget_tokens: int
    longest_gap_s: float
    budget_step_s: float
    prompt_ttft_s: float
    streams_tpot_s: float


def on_nodes(model: str, accelerator: str, devices: int, compute_share: float) -> Machine:
    """A model on so many devices that reach this share of their peak, else as good as they can."""
    fitted = machine(model, accelerator, tensor_parallel=devices)
    assert isinstance(fitted.steps, StepTime), "a machine of the catalog"
    ideal = StepTime(fitted.steps.shape, roofline(compute_share=compute_share))
    return Machine(ideal, fitted.kv_tokens)


def chunked_prefill(
    on: Machine, prompt_tokens: int, budgets: Sequence[int], streams: Streams | None = None
) -> list[Chunked]:
    """The same requests under each budget."""
    return [_under(on, prompt_tokens, budget, streams or Streams()) for budget in budgets]


def _under(on: Machine, prompt_tokens: int, budget: int, streams: Streams) -> Chunked:
    engine = Engine(on, max_batched_tokens=budget)
    requests = [Request(0.0, streams.prompt_tokens, streams.output_tokens)] * streams.count
    requests.append(Request(_AT_S, prompt_tokens, 1))
    serving = Serving((Model("chat", engine),), gaps=True)
    outcome = simulate(serving, OpenLoop(requests, "chat"))
    is_long = outcome.columns["prompt_tokens"] == prompt_tokens
    context = streams.prompt_tokens + streams.output_tokens
    full_s = on.steps.step_s(
        streams.count, streams.count * context, budget - streams.count, prompt_tokens
    )
    return Chunked(
        budget,
        float(outcome.gap_s()[~is_long].max()),
        float(full_s),
        float(outcome.ttft_s()[is_long][0]),
        float(outcome.tpot_s().mean()),
    )
