"""One request of a workload, as whoever sends it knows it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """When it comes, counted from the first, how large it is, and who asks whom.

    `blocks` names the leading blocks of the prompt. Equal leading ids mean equal leading text,
    which a prefix cache can find; blocks hold `Trace.block_tokens` tokens each. Turns of one
    conversation have one `session`. What is not known is empty.
    """

    at_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    tenant: str = ""
    session: str = ""
    model: str = ""
