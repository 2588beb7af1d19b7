"""What crosses between the HTTP front and the engine process: one message a step each way.

Token ids cross, never text: the front owns the tokenizer, the engine owns the weights. All
types are msgspec structs, encoded as MessagePack by `process`.
"""

import msgspec


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one request's tokens are chosen. Validated by the front; the engine trusts it.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1, `min_p` 0 and the penalties' neutral values
    (1, 0, 0) switch a rule off. `seed` makes a request reproducible whatever else is in the
    batch. `logprobs` is the number of alternatives wanted beside the chosen token (0: only the
    chosen one), None for no log-probabilities at all. `grammar` is a llguidance grammar.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None
    grammar: str | None = None


class Add(msgspec.Struct, frozen=True, tag="add"):
    """A new request. Its `n` continuations are told apart by `index` in what comes back.

    `priority`: lower goes first (vLLM's convention). `salt` keeps tenants' prefixes apart.
    `resumed` are its first output tokens, generated elsewhere; then `n` is 1.
    """

    id: str
    prompt: list[int]
    sampling: Sampling
    n: int = 1
    priority: int = 0
    salt: bytes = b""
    resumed: list[int] = []


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Stop a request and free its blocks at once; nothing more is said about it.

    With `index`, only that continuation (it met a stop string), else all of them.
    """

    id: str
    index: int | None = None


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Leave: the engine process ends as soon as it has read this."""


ToEngine = Add | Abort | Stop


class Logprob(msgspec.Struct, frozen=True, array_like=True):
    """The chosen token's log-probability, and the likeliest alternatives (token, logprob)."""

    logprob: float
    top: list[tuple[int, float]]


class Output(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """New tokens of one continuation, in one step: one, or more where guesses came true.

    `finish` is "stop" (end of sequence or a stop token, which is then the last of `tokens`),
    "length", or "error" (with `error` saying why, e.g. a grammar that cannot be compiled).
    `cached_tokens` (with the first output of a request) counts prompt tokens found in the cache.
    """

    id: str
    index: int
    tokens: list[int]
    logprobs: list[Logprob] = []
    finish: str | None = None
    cached_tokens: int = 0
    error: str = ""


class Stats(msgspec.Struct, gc=False):
    """The engine's gauges and counters (totals since it started) after a step.

    The engine counts in one of its own, and sends copies.

    `drafts` counts rows of guesses that were run, `draft_tokens` the guesses in them,
    `accepted_tokens` those that came true.
    """

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    steps: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0


class Stepped(msgspec.Struct, frozen=True, tag="stepped"):
    """All that one step produced."""

    outputs: list[Output]
    stats: Stats


class Stage(msgspec.Struct, frozen=True, tag="stage"):
    """While the engine starts: a stage begins, which ends another one that took so long."""

    stage: str
    ended: str
    spent_s: float


class Started(msgspec.Struct, frozen=True, tag="started"):
    """Sent once: the weights are loaded, a token was really generated, requests may come."""

    max_model_len: int
    blocks: int
    block_size: int
    vocab_size: int
    dtype: str
    threads: int
    kernels: str
    stages_s: dict[str, float]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Sent instead of `Started` when the engine cannot start: the error's three parts."""

    problem: str
    where: str = ""
    remedy: str = ""


FromEngine = Stepped | Stage | Started | Failed
