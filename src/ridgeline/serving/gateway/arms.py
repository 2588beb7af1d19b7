"""What was seen of each version of a model while there are two: the evidence of a rollout's gate.

It begins anew with every split, so that both versions were asked in the same time. What a client
did wrong, or left, says nothing of a version.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ridgeline.serving.gateway.record import Exchange
from ridgeline.serving.policy.gate import Arm, stratum

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
        """A request has ended. Times that another replica had its part in say nothing of this."""
        of_model = self._arms.get(exchange.model)
        if of_model is None:
            return
        failures, version = list(exchange.failures), exchange.version
        broken = exchange.status >= 500 or (exchange.status < 400 and bool(exchange.error))
        if broken and version not in failures:
            failures.append(version)
        for failed in filter(None, failures):
            of_model[failed] = of_model.get(failed, Arm()).failed()
        if version and exchange.status < 400 and not broken:
            group = stratum(exchange.uncached_tokens, exchange.others)
            times = (None, None) if exchange.retries else (exchange.ttft_s, exchange.tpot_s)
            of_model[version] = of_model.get(version, Arm()).saw(group, *times)

    def told(self) -> dict[str, Any]:
        """As plain values, for `evidence` elsewhere."""
        return {
            model: {
                version: msgspec.to_builtins(arm, str_keys=True) for version, arm in arms.items()
            }
            for model, arms in self._arms.items()
        }


def evidence(told: Iterable[Mapping[str, Any]]) -> Evidence:
    """What all workers together have seen, from what each has told."""
    found: dict[str, dict[str, Arm]] = {}
    for one in told:
        for model, arms in one.items():
            of_model = found.setdefault(model, {})
            for version, arm in arms.items():
                seen = msgspec.convert(arm, Arm, strict=False)
                of_model[version] = of_model.get(version, Arm()).and_also(seen)
    return found
