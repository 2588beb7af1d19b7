"""The ledger's rows as a driver takes them: tuples in the order of their table's columns.

A gateway writes several rows for each request, so there is nothing between a row and the driver:
money is in whole nano-dollars and small trees are JSON text. `ledger_sql` has the statements.
"""

from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

import msgspec

from ridgeline.serving.gateway.callers import Caller
from ridgeline.serving.policy.limits import Use
from ridgeline.serving.policy.price import Price

_NANO_PLACES = 9


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request may use at most, and what that costs."""

    request_id: str
    caller: Caller
    model: str
    endpoint: str
    input_tokens: int
    output_tokens: int
    price: Price


@dataclass(frozen=True, slots=True)
class Actual:
    """What a request has used.

    `basis` says who counted: "usage", "replica log", "streamed" or "own count".
    """

    replica: str
    status: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    basis: str


class Attempt(NamedTuple):
    """One dispatch of a request: the id that it was sent under, and to which replica."""

    id: str
    replica: str


class Reservation(NamedTuple):
    """A row of `reservations`: what a running request may still use."""

    request_id: str
    worker: str
    tenant: str
    key_id: str
    model: str
    endpoint: str
    input_tokens: int
    output_tokens: int
    nano_usd: int
    price: str
    began_ns: int = 0
    replica: str = ""
    attempts: str = "[]"
    streamed_tokens: int = 0
    status: int = 0
    ended_ns: int | None = None

    @property
    def subjects(self) -> tuple[str, str]:
        """The accounts that it counts in."""
        return subjects(self.tenant, self.key_id)

    @property
    def held(self) -> Use:
        """What it may use at most."""
        return Use(self.input_tokens, self.output_tokens, usd(self.nano_usd))


class Entry(NamedTuple):
    """A row of `entries`, but for its number."""

    request_id: str
    tenant: str
    key_id: str
    model: str
    endpoint: str
    replica: str
    status: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    nano_usd: int
    basis: str
    began_ns: int
    ended_ns: int


class Decision(NamedTuple):
    """A row of `decisions`."""

    request_id: str
    tenant: str
    at_ns: int
    detail: str


def subjects(tenant: str, key_id: str) -> tuple[str, str]:
    """What the accounts of a tenant and of its key are called."""
    return f"tenant:{tenant}", f"key:{key_id}"


def nano(amount_usd: Decimal) -> int:
    """Money as a column keeps it; the amount is rounded to that already."""
    return int(amount_usd.scaleb(_NANO_PLACES))


def usd(amount_nano: int) -> Decimal:
    """Money as policies know it."""
    return Decimal(amount_nano).scaleb(-_NANO_PLACES)


@lru_cache(maxsize=1024)
def price_text(price: Price) -> str:
    """A price as a reservation keeps it: the one that held when the request began."""
    return msgspec.json.encode(price).decode()


@lru_cache(maxsize=1024)
def price_of(text: str) -> Price:
    """The price that `price_text` wrote."""
    return msgspec.json.decode(text, type=Price)


def attempts_text(attempts: list[Attempt]) -> str:
    """Attempts as a reservation keeps them."""
    return msgspec.json.encode(attempts).decode()


def attempts_of(text: str) -> list[Attempt]:
    """The attempts that `attempts_text` wrote, in order."""
    return msgspec.json.decode(text, type=list[Attempt])
