"""A gateway worker in which one thing may be missing: what the oracles have to notice.

Started in place of `ridgeline gateway-worker` by `chaos_platform`, with the name of a mutant.
"""

import sys
from collections.abc import Callable
from typing import Any

from ridgeline.serving.gateway.admission import Admission
from ridgeline.serving.gateway.ledger import Ledger
from ridgeline.serving.policy.failures import RetryBudget
from ridgeline.serving.policy.vtc import Counters, Flow


def no_settle() -> None:
    """Requests end, and nobody is charged."""

    async def settle(self: Ledger, request_id: str, actual: Any) -> None:
        self._running.pop(request_id, None)

    Ledger.settle = settle  # type: ignore[method-assign,assignment]


def no_lease_expiry() -> None:
    """A worker that is gone stays where it is: nobody takes its requests over."""
    claim = Ledger._claim

    def only_mine(self: Ledger, connection: Any, now_ns: int) -> Any:
        return claim(self, connection, 0)  # at that time no lease had run out

    Ledger._claim = only_mine  # type: ignore[method-assign]


def no_retry() -> None:
    """Nobody else is asked where a replica fails before its first byte."""
    RetryBudget.spend = lambda self: None  # type: ignore[method-assign]


def every_try_charged() -> None:
    """A request that was sent twice is charged twice."""
    charge = Admission._charge

    def twice(self: Admission, exchange: Any, admitted: Any) -> None:
        if exchange.usage is not None:
            exchange.usage.completion_tokens *= 1 + exchange.retries
        charge(self, exchange, admitted)

    Admission._charge = twice  # type: ignore[method-assign]


def no_turns() -> None:
    """Who came first goes first, whatever a tenant has had."""

    def oldest(self: Counters) -> Flow | None:
        flows = [flow for flow in self.flows.values() if flow.queue]
        return min(flows, key=lambda flow: flow.head.since_ns, default=None)

    Counters.least = oldest  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "no-settle": no_settle,
    "no-lease-expiry": no_lease_expiry,
    "no-retry": no_retry,
    "every-try-charged": every_try_charged,
    "no-turns": no_turns,
}

if __name__ == "__main__":
    from ridgeline.cli.gateway_worker import gateway_worker

    MUTANTS[sys.argv[1]]()
    gateway_worker(args=[])
