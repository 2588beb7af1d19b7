"""The serving part of platform.yaml, typed. Unknown keys are errors.

Only what the product does today can be written; `ridgeline.spec` loads the file and turns
pydantic's complaints into ours.
"""

import ipaddress
from decimal import Decimal
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from ridgeline.serving.schedule import check_cron, check_timezone
from ridgeline.serving.simulated_spec import Simulated
from ridgeline.serving.spec_part import Part
from ridgeline.serving.tenant_spec import Count, PriceSpec, Usd
from ridgeline.units import parse_bytes, parse_seconds

#: As JSON it is written as it is read: with its unit.
Seconds = Annotated[
    float,
    BeforeValidator(parse_seconds),
    PlainSerializer(lambda value: f"{round(value, 9)!r}s", when_used="json"),
    Field(ge=0),
]
Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0)]


class RidgelineEngine(Part):
    """Ridgeline's own engine, started and watched on this machine."""

    kind: Literal["ridgeline"] = "ridgeline"
    dtype: Literal["bf16", "fp32", "int8"] = Field(
        "bf16", description="what is computed in; int8: weights and activations of layers (W8A8)"
    )
    kv_cache_dtype: Literal["auto", "int8"] = Field(
        "auto", description="type of cached keys and values; auto: as the model computes"
    )
    threads: int = Field(0, ge=0, description="threads of one replica; 0 shares all cores evenly")
    max_model_len: int = Field(0, ge=0, description="longest sequence in tokens; 0: the model's")
    max_seqs: int = Field(64, ge=1, description="sequences that run at once in a replica")
    max_batched_tokens: int = Field(512, ge=1, description="token budget of one step")
    kv_cache: Bytes = Field(1_000_000_000, description="paged key-value cache, e.g. 1GB")
    prefix_caching: bool = Field(True, description="reuse the cache of equal prompt beginnings")
    speculation: Literal["off", "ngram"] = Field(
        "off", description="guess tokens from the text so far, where steps are found to have room"
    )
    draft_tokens: int = Field(8, ge=1, le=16, description="guesses in a row for one sequence")


class UrlEngine(Part):
    """Servers that run already: anything that speaks OpenAI's API (vLLM, SGLang, llama.cpp)."""

    kind: Literal["url"]
    urls: list[str] = Field(min_length=1, description="base URLs, e.g. http://10.0.0.7:8000")
    api_key_env: str | None = Field(None, description="environment variable with their key")

    @model_validator(mode="after")
    def _are_http(self) -> Self:
        for url in self.urls:
            check_address(url)
        return self


def check_address(url: str) -> None:
    """ValueError unless the URL names a host that can be reached over http or https."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port beyond 65535, or a bracket that is not closed
        usable = False
    if not usable:
        raise ValueError(f"{url!r} is not an http:// or https:// address")


class FakeEngine(Part):
    """Fake replicas, started and watched on this machine: made-up words in a real model's time."""

    kind: Literal["fake"]
    accelerator: str | None = Field(
        None, description="times of `model` (a catalog id) on this catalog id; else plain numbers"
    )
    step: Seconds = Field(0.01, description="a decode step")
    step_per_seq: Seconds = Field(0.0, description="more for each sequence in it")
    prefill_tokens_per_s: float = Field(20_000.0, gt=0, description="prompts")
    kv_tokens: int = Field(400_000, ge=1, description="tokens that the cache holds")
    max_seqs: int = Field(64, ge=1, description="sequences that run at once in a replica")
    starting: Seconds = Field(0.0, description="from the start of the process until it listens")
    loading: Seconds = Field(0.0, description="from then until it is ready")
    faults: list[str] = Field(default_factory=list, description="see docs/guide/fake-replica.md")


class ServerEngine(Part):
    """A server of somebody else's, started and watched on this machine."""

    tensor_parallel: int = Field(1, ge=1, description="devices that one replica splits a model on")
    dtype: Literal["auto", "bf16", "fp16", "fp32", "fp8"] = Field(
        "auto", description="what is computed in; auto: as the weights are"
    )
    kv_dtype: Literal["auto", "fp8"] = Field("auto", description="of cached keys and values")
    max_model_len: int = Field(0, ge=0, description="longest sequence in tokens; 0: the model's")
    max_seqs: int = Field(256, ge=1, description="sequences that run at once in a replica")
    memory_share: float | None = Field(
        None, gt=0, le=1, description="share of a device's memory that it takes; its own default"
    )
    args: list[str] = Field(default_factory=list, description="more arguments, as they are")
    env: dict[str, str] = Field(
        default_factory=dict, description="more environment; secrets belong into ridgeline's own"
    )
    command: str | None = Field(None, description="the program, where it is not on PATH")
    devices: list[Annotated[int, Field(ge=0)]] | Literal["auto"] = Field(
        "auto", description="numbers of those it may use; auto: any free one; []: none is given"
    )

    @model_validator(mode="after")
    def _is_ours_to_say(self) -> Self:
        for one in self.args:
            name = one.partition("=")[0].replace("_", "-")
            if name in _OURS_TO_SAY:
                raise ValueError(f"args: {name} is not yours to set; {_OURS_TO_SAY[name]}")
        if self.devices != [] and _VISIBLE in self.env:
            raise ValueError(f"env: write `devices` in place of {_VISIBLE}, or devices: [] too")
        if self.devices != "auto" and len(set(self.devices)) < len(self.devices):
            raise ValueError("devices: a device is named twice")
        return self


_VISIBLE = "CUDA_VISIBLE_DEVICES"
_FOR_GATEWAY = "the gateway must reach it"
_OURS_TO_SAY = {
    "--host": _FOR_GATEWAY,
    "--port": _FOR_GATEWAY,
    "--api-key": _FOR_GATEWAY,
    "--served-model-name": "it is the model's `name`",
    **dict.fromkeys(
        ("--tensor-parallel-size", "-tp", "--tp", "--tp-size"), "write `tensor_parallel`"
    ),
}


class VllmEngine(ServerEngine):
    """`vllm serve`."""

    kind: Literal["vllm"]


class SglangEngine(ServerEngine):
    """`sglang serve`."""

    kind: Literal["sglang"]


class Up(Part):
    """How fast replicas are added."""

    by: int = Field(2, ge=1, description="replicas at most in that time")
    every: Seconds = Field(60.0, gt=0, description="the time")


class Down(Part):
    """When replicas are taken away."""

    stabilise: Seconds = Field(300.0, description="only as many as were too many for so long")


class Cron(Part):
    """A number of replicas from certain times on."""

    at: str = Field(description="cron expression, e.g. 0 8 * * 1-5")
    min: int = Field(ge=0, description="at least so many from then on, to the next entry's time")


class Scale(Part):
    """How the number of replicas follows the demand."""

    target_per_replica: float | Literal["auto"] = Field(
        "auto", description="requests at once that one serves well; else 80 % of its slots"
    )
    tpot: Seconds | None = Field(
        None, description="auto: as many as are decoded within this, by step_times"
    )
    step_times: str | None = Field(
        None, description="auto: whose, e.g. llama-3.1-70b@4xh100-sxm (both of the catalog)"
    )
    up: Up = Field(default_factory=Up)
    down: Down = Field(default_factory=Down)
    zero_after: Seconds = Field(300.0, description="min 0: quiet time before the last one stops")
    spare: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        0, description="replicas beyond what the demand needs, while any; auto: by Little's law"
    )
    cron: list[Cron] = Field(default_factory=list, description="floors by the time of day")
    timezone: str = Field("UTC", description="of cron, as Europe/Berlin")

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if (self.tpot is None) != (self.step_times is None):
            raise ValueError("tpot and step_times go together")
        check_timezone(self.timezone)
        for one in self.cron:
            check_cron(one.at)
        if self.target_per_replica != "auto" and self.target_per_replica <= 0:
            raise ValueError("target_per_replica is more than 0, or auto")
        return self


class Replicas(Part):
    """How many replicas of a model there are."""

    min: int = Field(1, ge=0, description="replicas that are always there; 0: none while none asks")
    max: int | None = Field(None, ge=1, description="the most; `min` where it is not set")
    scale: Scale = Field(default_factory=Scale)
    slots: int | None = Field(
        None, ge=1, description="requests at once in one; max_seqs of our engine, else 256"
    )
    start: Seconds | None = Field(
        None, description="how long a start takes, for simulations; `up` measures its own"
    )
    start_timeout: Seconds = Field(
        1800.0, gt=0, description="a start that is not ready by then is ended, and tried again"
    )
    usd_per_hour: Usd = Field(
        Decimal(0), description="what one costs, for `ridgeline cost`, e.g. 2.30"
    )

    @model_validator(mode="after")
    def _has_bounds(self) -> Self:
        if self.max is None and self.min == 0:
            raise ValueError("min 0 needs a max, how many there are when somebody asks")
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max {self.max} is less than min {self.min}")
        return self

    @property
    def most(self) -> int:
        """How many there are at most."""
        return self.min if self.max is None else self.max


class Slo(Part):
    """What a model's clients are promised; plans and simulations count who got it."""

    ttft: Seconds = Field(description="time to the first token, e.g. 500ms")
    tpot: Seconds = Field(description="time of each token after it, e.g. 50ms")
    attainment: float = Field(0.95, gt=0, le=1, description="share of requests within both")


class Routing(Part):
    """How a replica is chosen for a request."""

    policy: Literal[
        "prefix-sticky",
        "least-load",
        "power-of-two",
        "session",
        "round-robin",
        "sglang-cache-aware",
        "dynamo-kv",
        "llm-d-scorers",
        "production-stack-prefix",
    ] = Field("prefix-sticky", description="the rule; the last four are others', to compare with")
    wait: Seconds = Field(
        0.5, description="prefix-sticky: wait for a warm replica that a cold one may spare"
    )
    session_header: str = Field(
        "x-session-id", description="session: the header that names it; else the user field"
    )


class ModelSpec(Part):
    """A model that clients call by `name`."""

    name: str = Field(min_length=1, description="the stable name that clients call")
    model: str | None = Field(
        None,
        description="a packaged model's name, a GGUF file, a Hugging Face folder, or store:NAME or "
        "sha256:… of `ridgeline models`; "
        "for vllm and sglang also a name that they find themselves",
    )
    engine: Annotated[
        RidgelineEngine | VllmEngine | SglangEngine | FakeEngine | UrlEngine,
        Field(discriminator="kind"),
    ] = Field(default_factory=RidgelineEngine, description="what runs it")
    on: str | None = Field(
        None, description="the `hardware` that plans and simulations take for it; `up` runs it here"
    )
    slo: Slo | None = None
    simulated: Simulated | None = Field(None, description="for simulations: what `up` cannot know")
    replicas: Replicas = Field(default_factory=Replicas)
    routing: Routing = Field(default_factory=Routing)
    price: PriceSpec = Field(default_factory=PriceSpec)
    max_output_tokens: Count | None = Field(
        None, description="of an answer whose request does not say; the context's rest"
    )

    @model_validator(mode="before")
    @classmethod
    def _kind_by_default(cls, data: object) -> object:
        """`engine: {dtype: fp32}` means our own engine."""
        if isinstance(data, dict) and isinstance(engine := data.get("engine"), dict):
            return {**data, "engine": {"kind": "ridgeline", **engine}}
        return data

    @model_validator(mode="after")
    def _has_a_source(self) -> Self:
        needs_weights = isinstance(self.engine, RidgelineEngine | ServerEngine)
        if needs_weights and self.model is None:
            kind = self.engine.kind
            raise ValueError(f"an engine of kind {kind} needs `model`, the weights to load")
        if isinstance(self.engine, UrlEngine) and self.replicas.max is not None:
            raise ValueError("servers that run already are not scaled: leave replicas.max out")
        engine = self.engine
        if isinstance(engine, FakeEngine) and bool(self.model) != bool(engine.accelerator):
            raise ValueError("an engine of kind fake has both model and accelerator, or neither")
        return self


class GatewaySpec(Part):
    """Where clients connect."""

    listen: str = Field("127.0.0.1:8000", description="address:port of the OpenAI API and console")
    api_key_env: str | None = Field(
        None, description="environment variable with the key that clients must send"
    )
    admin_key_env: str | None = Field(
        None, description="environment variable with a key that may change tenants and keys"
    )
    workers: int = Field(1, ge=1, le=64, description="processes that share the address")
    database: str | None = Field(
        None, description="sqlite:///FILE or postgresql://…; a file of the platform's own"
    )
    tracing: str | None = Field(
        None, description="OpenTelemetry collector, e.g. http://127.0.0.1:4318"
    )
    log_prompts: bool = Field(False, description="write prompts and answers to the log")

    @model_validator(mode="after")
    def _listens_somewhere(self) -> Self:
        host, port = self.host, self.listen.rpartition(":")[2]
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"listen {self.listen!r} is not address:port, e.g. 127.0.0.1:8000")
        if not is_loopback(host) and self.api_key_env is None:
            raise ValueError(f"listen {self.listen!r} is open to the network: set api_key_env too")
        return self

    @property
    def host(self) -> str:
        """The address without port and brackets."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port; 0 lets the system choose a free one."""
        return int(self.listen.rpartition(":")[2])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
