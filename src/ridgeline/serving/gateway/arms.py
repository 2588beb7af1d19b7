"""What was seen of each version of a model while there are two: the evidence of a rollout's gate.

It begins anew with every split, so that both versions were asked in the same time. What a client
did wrong, or left, says nothing of a version.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ridgeline.serving.gateway.record import CANCELLED, Exchange
from ridgeline.serving.policy.gate import Arm

#: By model, then by version.
Evidence = Mapping[str, Mapping[str, Arm]]


class Arms:
    """The evidence of one worker."""

    def __init__(self) -> None:
        self._arms: dict[str, dict[str, Arm]] = {}

    def begin(self, model: str) -> None:
        """Nothing was seen yet."""
        self._arms[model] = {}

    def end(self, model: str) -> None:
        """Nobody asks any more."""
        self._arms.pop(model, None)

    def saw(self, exchange: Exchange) -> None:
        """A request has ended."""
        of_model = self._arms.get(exchange.model)
        if of_model is None or not exchange.version or exchange.status == CANCELLED:
            return
        failed = exchange.status >= 500 or (exchange.status < 400 and bool(exchange.error))
        if not failed and exchange.status >= 400:
            return
        arm = of_model.get(exchange.version, Arm())
        ttft, tpot = arm.ttft, arm.tpot
        if not failed and exchange.ttft_s:
            ttft = ttft.saw(exchange.ttft_s)
        if not failed and exchange.tpot_s:
            tpot = tpot.saw(exchange.tpot_s)
        of_model[exchange.version] = Arm(arm.requests + 1, arm.errors + failed, ttft, tpot)

    def told(self) -> dict[str, Any]:
        """As plain values, for `evidence` elsewhere."""
        return {
            model: {version: msgspec.to_builtins(arm) for version, arm in arms.items()}
            for model, arms in self._arms.items()
        }


def evidence(told: Iterable[Mapping[str, Any]]) -> Evidence:
    """What all workers together have seen, from what each has told."""
    found: dict[str, dict[str, Arm]] = {}
    for one in told:
        for model, arms in one.items():
            of_model = found.setdefault(model, {})
            for version, arm in arms.items():
                seen = msgspec.convert(arm, Arm)
                of_model[version] = of_model.get(version, Arm()).and_also(seen)
    return found
