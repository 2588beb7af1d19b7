"""How a gateway is set up, and what it must know of a replica: plain values, no behaviour."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from ridgeline.errors import SpecError
from ridgeline.serving.http_guard import Patience
from ridgeline.serving.policy.price import Price
from ridgeline.serving.policy.route import RULES

ANY = "*"  # as a model: whatever a replica serves itself; among settings: models not named


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a replica may take, in seconds.

    `connect_s` to accept a connection; `first_byte_s` from sending a request to the first byte of
    its answer (long queues and whole answers need minutes); `idle_s` between two pieces of an
    answer; `probe_s` for a look at its health, `first_token_s` for the token that makes it ready.
    """

    connect_s: float = 3.0
    first_byte_s: float = 600.0
    idle_s: float = 120.0
    probe_s: float = 2.0
    first_token_s: float = 60.0


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What the gateway knows of a model that its replicas do not say.

    `rule` routes its requests; `wait_s` and `session_header` are for the rules that need them.
    `slots` is how many requests at once one replica gets. `max_output_tokens` bounds an
    answer whose request does not, where somebody pays. `usd_per_hour` is what a replica costs.
    """

    rule: str = "prefix-sticky"
    wait_s: float = 0.5
    session_header: str = "x-session-id"
    slots: int = 256
    price: Price = field(default_factory=lambda: Price(Decimal(0), Decimal(0), Decimal(0)))
    max_output_tokens: int = 4096
    usd_per_hour: Decimal = Decimal(0)

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise SpecError(
                f"{self.rule!r} is not a routing rule",
                where="routing.policy",
                remedy=f"one of: {', '.join(RULES)}",
            )


_DEFAULTS = ModelSettings()


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """One gateway's settings; each of its worker processes gets the same.

    With `api_key`, clients must send it or a key of a tenant; without, and where `open`, anybody
    may ask. `admin_key` may change tenants. `database` is where tenants, limits and the ledger
    are. A request is sent again at most `retries` times, only before the first byte of an answer.
    Health is looked at every `probe_every_s`, and every `probe_starting_s` while a replica is not
    ready. A request for a model of which no replica is ready just now waits at most `hold_s`, and
    longer where one was announced (`Fleet.expect`), but no more than `most_held` of a model do.
    `usage_logs` is where replicas that we started keep theirs, for those that are gone.
    `worker` names this process among `workers` that share the address.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    database: str = "sqlite:///:memory:"
    api_key: str | None = None
    admin_key: str | None = None
    open: bool = True
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    timeouts: Timeouts = field(default_factory=Timeouts)
    patience: Patience = field(default_factory=Patience)
    most_body_bytes: int = 16 * 1024 * 1024
    retries: int = 2
    probe_every_s: float = 2.0
    probe_starting_s: float = 0.1
    hold_s: float = 5.0
    most_held: int = 1000
    log_file: str = ""
    log_prompts: bool = False
    tracing: str | None = None
    usage_logs: str = ""
    worker: str = "0"
    workers: int = 1

    def model(self, name: str) -> ModelSettings:
        """The settings of a model; where it has none, those for any."""
        return self.models.get(name) or self.models.get(ANY) or _DEFAULTS


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """Where a replica is: an OpenAI-compatible server, with or without `/v1` in its `url`.

    `model` is the name that clients call; a replica that serves one model under another name is
    asked by its own. "*" takes the names that it serves. `api_key` is sent to it. `version` is what
    of the model it runs, where there can be two.
    """

    id: str
    url: str
    model: str = ANY
    api_key: str | None = None
    version: str = ""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise SpecError(
                f"{self.url!r} is not an http:// or https:// address",
                where=f"replica {self.id}",
                remedy="http://host:port",
            )

    @property
    def root(self) -> str:
        """The address that paths such as /v1/models and /health are appended to."""
        return self.url.rstrip("/").removesuffix("/v1")
