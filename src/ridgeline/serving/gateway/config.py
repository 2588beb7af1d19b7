"""How a gateway is set up, and what it must know of a replica: plain values, no behaviour."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ridgeline.errors import SpecError
from ridgeline.serving.http_guard import Patience
from ridgeline.serving.policy.route import RULES

ANY = "*"  # as a replica's model: whatever it serves itself
_NO_ROUTING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a replica may take, in seconds.

    `connect_s` to accept a connection; `first_byte_s` from sending a request to the first byte of
    its answer (long queues and whole answers need minutes); `idle_s` between two pieces of an
    answer; `probe_s` for a look at its health.
    """

    connect_s: float = 3.0
    first_byte_s: float = 600.0
    idle_s: float = 120.0
    probe_s: float = 2.0


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """One gateway's settings.

    With `api_key`, clients must send it. `routing` names a rule for each model ("*": for those
    it does not name; without, "least-load"). A request is sent again at most `retries` times,
    only before the first byte of an answer. Health is looked at every `probe_every_s`, and every
    `probe_starting_s` while a replica is not ready.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    routing: Mapping[str, str] = field(default_factory=lambda: _NO_ROUTING)
    timeouts: Timeouts = field(default_factory=Timeouts)
    patience: Patience = field(default_factory=Patience)
    most_body_bytes: int = 16 * 1024 * 1024
    retries: int = 2
    probe_every_s: float = 2.0
    probe_starting_s: float = 0.1

    def __post_init__(self) -> None:
        for model, rule in self.routing.items():
            if rule not in RULES:
                raise SpecError(
                    f"{rule!r} is not a routing rule",
                    where=f"gateway.routing[{model!r}]",
                    remedy=f"one of: {', '.join(RULES)}",
                )

    def rule(self, model: str) -> str:
        """The name of the rule that routes requests for `model`."""
        return self.routing.get(model) or self.routing.get(ANY) or "least-load"


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """Where a replica is: an OpenAI-compatible server, with or without `/v1` in its `url`.

    `model` is the name that clients call; a replica that serves one model under another name is
    asked by its own. "*" takes the names that it serves. `api_key` is sent to it.
    """

    id: str
    url: str
    model: str = ANY
    api_key: str | None = None

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
